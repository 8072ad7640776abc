//go:build !sq_installed

package sq

// The library as `make` leaves it in the top folder of the sources.

// #cgo CFLAGS: -I${SRCDIR}/../..
// #cgo LDFLAGS: -L${SRCDIR}/../.. -lsq -Wl,-rpath,${SRCDIR}/../..
import "C"
