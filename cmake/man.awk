# cmake/man.awk - a manual page from a template of man/ and the programs' own help, so that options and examples are written once.
#
# usage: awk -v version=X.Y.Z -v program=./sq -f cmake/man.awk man/sq.1.in >sq.1
# In the template @VERSION@ is the version, the line @HELP@ what `program --help` prints, and the line @COMMANDS@ the help of each command that is listed there.
# In a help text a line that begins without a space is prose or a heading (one word and a colon, or "Exit status: "), two spaces and a term with its explanation
# behind two more are an item of a list, deeper lines go on with the explanation, and other indented lines stand as they are.

# Text that troff prints as it is and that can be copied from the page into a shell.
function escaped(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    gsub(/'/, "\\(aq", s)
    gsub(/`/, "\\(ga", s)
    gsub(/\^/, "\\(ha", s)
    gsub(/~/, "\\(ti", s)
    return s ~ /^\./ ? "\\&" s : s
}
function change_mode(to) {
    if (mode == "verbatim") print ".EE"
    if (to == "verbatim") print mode == "item" ? ".PP\n.EX" : ".EX"
    mode = to
}
function print_heading(word) {
    change_mode("")
    print level, level == ".SH" ? toupper(word) : toupper(substr(word, 1, 1)) substr(word, 2)
    section = word
}
function print_help_line(line,    at) {
    if (line ~ /^usage: /) {
        if (level == ".SH") print_heading("synopsis")
        change_mode("verbatim")
        print escaped(substr(line, 8))
    } else if (line ~ /^       [a-z-]+ / && section == "synopsis") {
        print escaped(substr(line, 8))
    } else if (line == "" && section == "synopsis") {
        print_heading("description")
    } else if (line == "") {
        change_mode("")
        is_apart = 1
        return
    } else if (line ~ /^Exit status: /) {
        print_heading("exit status")
        print escaped(substr(line, 14))
    } else if (line ~ /^[a-z]+:$/) {
        print_heading(substr(line, 1, length(line) - 1))
    } else if (line ~ /^  [^ ].*[^ ]  +[^ ]/ || line ~ /^ +-/) {
        change_mode("item")
        sub(/^ +/, "", line)
        at = match(line, /  +/)
        print ".TP\n.B " escaped(at ? substr(line, 1, at - 1) : line)
        if (at) print escaped(substr(line, at + RLENGTH))
    } else if (line ~ /^ / && mode == "item") {
        sub(/^ +/, "", line)
        print (line ~ /^[a-z]+(=N)?: / ? ".br\n" : "") escaped(line)
    } else if (line ~ /^ /) {
        change_mode("verbatim")
        print escaped(substr(line, 3))
    } else {
        if (is_apart || mode == "item") print ".PP"
        change_mode("prose")
        print escaped(line)
    }
    is_apart = 0
}
# The help of a command, or that of the program; keeps the commands that the latter lists in commands[1 .. n_commands].
function print_help(command,    line, n, words) {
    level = command == "" ? ".SH" : ".SS"
    command = program " " (command == "" ? "--help" : "help " command)
    while ((command | getline line) > 0) {
        print_help_line(line)
        split(line, words)
        if (section == "commands" && line ~ /^  /) commands[++n_commands] = words[1]
        n++
    }
    if (close(command) != 0 || n == 0) {
        print "man.awk: " command " failed" >"/dev/stderr"
        failed = 1
        exit
    }
    change_mode("")
}
$0 == "@HELP@" {
    print_help("")
    next
}
$0 == "@COMMANDS@" {
    for (i = 1; i <= n_commands; i++) {
        section = commands[i]
        print ".SH " toupper(section)
        print_help(section)
    }
    next
}
{
    gsub(/@VERSION@/, version)
    print
}
END { exit failed }
