package exectree

import (
	"fmt"
	"testing"
	"time"
)

// TestOnlyTheCommandAndItsChildrenEnd holds that other commands, and their orphaned children, keep running.
func TestOnlyTheCommandAndItsChildrenEnd(t *testing.T) {
	sleep, probe := []string{"sleep", "9"}, []string{"sh", "-c", "sleep 9 & sleep 9"}
	all := []process{
		{pid: 10, parent: 1, session: 10, age: time.Hour},                    // the container's first process
		{pid: 11, parent: 10, session: 10, age: time.Hour, args: probe},      // its child
		{pid: 20, parent: 1, session: 20, age: time.Minute, args: probe},     // a command that began before
		{pid: 21, parent: 10, session: 20, age: time.Minute, args: sleep},    // what it has left
		{pid: 30, parent: 1, session: 30, age: time.Second, args: probe},     // the command
		{pid: 31, parent: 30, session: 30, age: time.Second, args: sleep},    // its child
		{pid: 32, parent: 10, session: 30, age: time.Second, args: sleep},    // one whose parent has ended
		{pid: 33, parent: 31, session: 33, age: time.Second, args: sleep},    // one with a session of its own
		{pid: 40, parent: 1, session: 40, age: time.Second / 4, args: probe}, // the same command, which began later
	}
	command := Command{Init: 10, Args: probe, Age: 1100 * time.Millisecond}
	root := findRoot(all, command)
	if got := fmt.Sprint(root, descendants(all, root)); got != "30 [30 31 32 33]" {
		t.Errorf("got %s", got)
	}
	late := []process{all[0], all[2], all[8]} // a busy runtime began it long after it was asked
	if got := findRoot(late, command); got != 40 {
		t.Errorf("a command that began late is %d", got)
	}
	command.Args = []string{"/bin/another"} // it has become another program, and is the only one of that age
	if got := findRoot(all, command); got != 30 {
		t.Errorf("got %d", got)
	}
	if got := findRoot(append(all, process{pid: 50, parent: 1, session: 50, age: time.Second, args: sleep}), command); got != 0 {
		t.Errorf("one of two was guessed: %d", got)
	}
	if got := findRoot(all[:4], command); got != 0 {
		t.Errorf("a command that has ended is %d", got)
	}
}

// TestParse reads a line of the kernel whose name is made to confuse.
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
