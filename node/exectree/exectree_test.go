package exectree

import (
	"fmt"
	"testing"
	"time"
)

// TestFindRootAndDescendants checks that a command is found with its children, and not other commands or their orphaned children.
func TestFindRootAndDescendants(t *testing.T) {
	sleep, probe := []string{"sleep", "9"}, []string{"sh", "-c", "sleep 9 & sleep 9"}
	all := []process{
		{pid: 10, parent: 1, session: 10, age: time.Hour},                    // the container's first process
		{pid: 11, parent: 10, session: 10, age: time.Hour, args: probe},      // its child
		{pid: 20, parent: 1, session: 20, age: time.Minute, args: probe},     // a command that was started before
		{pid: 21, parent: 10, session: 20, age: time.Minute, args: sleep},    // its orphaned child
		{pid: 30, parent: 1, session: 30, age: time.Second, args: probe},     // the command
		{pid: 31, parent: 30, session: 30, age: time.Second, args: sleep},    // its child
		{pid: 32, parent: 10, session: 30, age: time.Second, args: sleep},    // an orphaned child
		{pid: 33, parent: 31, session: 33, age: time.Second, args: sleep},    // a child with its own session
		{pid: 40, parent: 1, session: 40, age: time.Second / 4, args: probe}, // the same command, started later
	}
	command := Command{Init: 10, Args: probe, Age: 1100 * time.Millisecond}
	root := findRoot(all, command)
	if got := fmt.Sprint(root, descendants(all, root)); got != "30 [30 31 32 33]" {
		t.Errorf("got %s", got)
	}
	late := []process{all[0], all[2], all[8]} // a busy runtime started it late
	if got := findRoot(late, command); got != 40 {
		t.Errorf("a command that was started late is %d", got)
	}
	command.Args = []string{"/bin/another"} // it has called exec, and is the only process of that age
	if got := findRoot(all, command); got != 30 {
		t.Errorf("got %d", got)
	}
	if got := findRoot(append(all, process{pid: 50, parent: 1, session: 50, age: time.Second, args: sleep}), command); got != 0 {
		t.Errorf("one of two candidates was chosen: %d", got)
	}
	if got := findRoot(all[:4], command); got != 0 {
		t.Errorf("a command that has ended is %d", got)
	}
}

// TestParse reads a line of /proc/PID/stat whose command name contains parentheses.
func TestParse(t *testing.T) {
	p, state, began, ok := parse("7 (a) S 1 (b) R 3 4 5 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 250 8000000 100 18446744073709551615 1 1 0\n")
	if got := fmt.Sprintf("%d %d %s %s %v", p.parent, p.session, state, began, ok); got != "3 5 R 2.5s true" {
		t.Errorf("got %s", got)
	}
	for _, text := range []string{"", "7 (a", "7 (a) S 1 2"} {
		if _, _, _, ok := parse(text); ok {
			t.Errorf("%q was read", text)
		}
	}
}
