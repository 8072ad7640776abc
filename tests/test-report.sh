#!/usr/bin/env bash
# tests/test-report.sh - sq-convert --report: both files come, are well-formed whatever the checkpoint is called, and a bad place for them is refused before the
# conversion.
#
# usage: test-report.sh SQ_CONVERT CHECKPOINT
set -euo pipefail
sq_convert=$(realpath "$1") checkpoint=$(realpath "$2")
# shellcheck source=tests/check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# Messages as check.sh wants them
# shellcheck disable=SC2317 # called through check
convert() {
    local code=0
    "$sq_convert" --quiet "$@" 2>messages || code=$?
    sed 's/^sq-convert: /sq: /' messages >&2
    return $code
}

# Parses a page as XML, its only head the doctype; then nothing in it may load anything.
well_formed() { # NAME PAGE
    if ! command -v python3 >/dev/null; then
        echo 'SKIP no python3 to parse the page with'
        return
    fi
    check "$1: well-formed" 0 python3 -c '
import sys, xml.etree.ElementTree as tree
page = open(sys.argv[1], encoding="utf-8").read()
root = tree.fromstring(page)
ids = [e.get("id") for e in root.iter() if e.get("id")]
assert len(ids) == len(set(ids)), "an id is used twice"
for e in root.iter():
    assert e.tag not in ("script", "img", "link", "iframe", "object", "image", "use"), e.tag
    assert not {"src", "href", "onload", "onerror"} & set(e.keys()), e.attrib
    for name in (e.get("aria-labelledby") or "").split():
        assert name in ids, name
    if e.tag == "svg":
        assert [c.tag for c in e][:2] == ["title", "desc"]
assert "http" not in page.replace("http-equiv", "")
' "$2"
}

name=$'<script>alert(1)&amp;"\xff\xc3('
cp -r "$checkpoint" "$name"
for mode in static dynamic float; do
    check "$mode" 0 convert "$name" -o m.sq --mode $mode --report "$mode.html" --report "$mode.json"
    if [[ -s m.sq ]]; then pass; else complain "$mode: no model file"; fi
    well_formed "$mode" "$mode.html"
    holds "$mode" "$mode.html" '<h1>&lt;script&gt;alert\(1\)&amp;amp;&quot;'
    holds "$mode" "$mode.json" "^\"mode\": \"$mode\",\$"
done
holds 'static' static.html '<svg '
holds 'static' static.html 'of the built-in set'
holds 'float' float.html 'nothing was quantised'
absent 'temporary files' static.html.
printf 'the dog %d\n' {1..9} >texts.txt
cp texts.txt same-texts.txt
check 'own texts' 0 convert "$checkpoint" -o m.sq --calibrate texts.txt --report texts.html
holds 'own texts' texts.html 'of texts.txt'

# ---- refused before anything is converted: no model file ----

refused() { # NAME PATTERN ARGUMENTS...
    local name=$1 pattern=$2
    shift 2
    rm -f m.sq
    check "$name" 1 convert "$checkpoint" -o m.sq "$@"
    holds "$name" err "$pattern"
    absent "$name" m.sq
}
refused 'no such folder' 'cannot create missing/r.html' --report missing/r.html
refused 'a folder' 'is a folder' --report .
refused 'the model file' 'm.sq' --report m.sq
refused 'a text file' 'texts.txt' --calibrate texts.txt --report texts.txt
refused 'twice the same' 'r.html' --report r.html --report ./r.html
refused 'the second is bad' 'missing' --report good.html --report missing/r.html
absent 'the second is bad' good.html
same 'a text file' texts.txt same-texts.txt
check 'no value' 2 convert "$checkpoint" -o m.sq --report

# ---- a conversion that fails leaves an older report alone ----

echo old >old.html
check 'no checkpoint' 1 convert missing -o m.sq --report old.html
if [[ $(cat old.html) == old ]]; then pass; else complain 'an older report was changed'; fi
check 'a full disk' 1 convert "$checkpoint" -o m.sq --report /dev/full
holds 'a full disk' err 'cannot write /dev/full'

finish test-report
