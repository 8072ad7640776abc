//! Contexts for many threads.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::{Context, ContextOptions, Error, Model};

/// Lends contexts of one model to any number of threads. It cannot be dropped while one is lent.
///
/// Many contexts of one thread give the most texts a second, few contexts of many threads the shortest calls.
pub struct Pool<'m> {
    free: Mutex<Vec<Context<'m>>>,
    returned: Condvar,
}

impl<'m> Pool<'m> {
    pub fn new(model: &'m Model, n: usize, options: &ContextOptions) -> Result<Pool<'m>, Error> {
        let contexts = (0..n.max(1))
            .map(|_| model.context(options))
            .collect::<Result<_, _>>()?;
        Ok(Pool {
            free: Mutex::new(contexts),
            returned: Condvar::new(),
        })
    }

    /// A context, after waiting for one. It goes back when it is dropped.
    pub fn lend(&self) -> Lent<'_, 'm> {
        let mut free = self.lock();
        loop {
            if let Some(context) = free.pop() {
                return Lent {
                    pool: self,
                    context: Some(context),
                };
            }
            free = self
                .returned
                .wait(free)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// A context, if one is free.
    pub fn try_lend(&self) -> Option<Lent<'_, 'm>> {
        let context = self.lock().pop()?;
        Some(Lent {
            pool: self,
            context: Some(context),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Context<'m>>> {
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A context of a pool.
pub struct Lent<'p, 'm> {
    pool: &'p Pool<'m>,
    context: Option<Context<'m>>, // until drop
}

impl<'m> Deref for Lent<'_, 'm> {
    type Target = Context<'m>;
    fn deref(&self) -> &Context<'m> {
        self.context.as_ref().expect("only drop takes it")
    }
}

impl<'m> DerefMut for Lent<'_, 'm> {
    fn deref_mut(&mut self) -> &mut Context<'m> {
        self.context.as_mut().expect("only drop takes it")
    }
}

impl Drop for Lent<'_, '_> {
    fn drop(&mut self) {
        self.pool.lock().extend(self.context.take());
        self.pool.returned.notify_one();
    }
}
