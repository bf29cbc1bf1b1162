package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// furtherNode is a further node of this machine: the process of its agent, its runtime with all containers, and the
// machine's end of its link.
type furtherNode struct {
	Node
	agent   int
	runtime []int // the runtime and all that it runs
	link    string
}

// process is a process of this machine.
type process struct {
	pid, parent int
	args        []string
}

// processes returns all running processes.
func processes() (out []process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		parent, _ := strconv.Atoi(fields[1])
		out = append(out, process{pid: pid, parent: parent, args: strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")})
	}
	return out
}

// isBelow reports whether a process was started for a folder: one of its arguments is a path in it.
func (p process) isBelow(folder string) bool {
	return slices.ContainsFunc(p.args, func(a string) bool {
		_, value, ok := strings.Cut(a, "=")
		return inFolder(a, folder) || ok && inFolder(value, folder)
	})
}

func inFolder(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// findNode finds the processes and the link of a node by its data folder.
func findNode(n Node, folder string) (*furtherNode, error) {
	v := &furtherNode{Node: n}
	all := processes()
	for _, p := range all {
		if len(p.args) > 1 && filepath.Base(p.args[0]) == "proa" && p.args[1] == "agent" && p.isBelow(folder) {
			v.agent = p.pid
		}
	}
	if v.agent == 0 {
		return nil, fmt.Errorf("node %s has no agent", n.Name)
	}
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	there, err := network(v.agent)
	if err != nil {
		return nil, err
	}
	if there == home {
		return nil, fmt.Errorf("node %s has no network of its own", n.Name)
	}
	for _, p := range all {
		if at, err := network(p.pid); err == nil && at == there && p.pid != v.agent {
			v.runtime = append(v.runtime, p.pid)
		}
	}
	// Containers have their own network namespaces, but are children of processes in that of the node.
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if slices.Contains(v.runtime, p.parent) && !slices.Contains(v.runtime, p.pid) && p.pid != v.agent {
				v.runtime, grown = append(v.runtime, p.pid), true
			}
		}
	}
	v.link, err = otherEnd(v.agent)
	return v, err
}

// network returns the network namespace of a process.
func network(pid int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)) }

// otherEnd returns the name of this machine's end of the link of a process with its own network namespace.
func otherEnd(pid int) (string, error) {
	out, err := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "--", "ip", "-o", "link", "show", "eth0").Output()
	if err != nil {
		return "", fmt.Errorf("the link of process %d: %w", pid, err)
	}
	_, rest, ok := strings.Cut(string(out), "eth0@if")
	number, _, _ := strings.Cut(rest, ":")
	if !ok {
		return "", fmt.Errorf("process %d has no eth0 that leads elsewhere: %s", pid, out)
	}
	all, err := exec.Command("ip", "-o", "link").Output()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(all)) {
		if rest, ok := strings.CutPrefix(line, number+": "); ok {
			name, _, _ := strings.Cut(rest, ":")
			name, _, _ = strings.Cut(name, "@")
			return name, nil
		}
	}
	return "", fmt.Errorf("the machine has no link %s", number)
}

// killAgent kills the agent; its containers keep running.
func (v *furtherNode) killAgent() error { return syscall.Kill(v.agent, syscall.SIGKILL) }

// kill kills the agent, the runtime and every container at once, like a power failure of a machine.
func (v *furtherNode) kill() error {
	err := v.killAgent()
	for _, pid := range v.runtime {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with its parent
	}
	return err
}

// cut drops all packets on the link, and restore accepts them again. The link itself stays up, because proa would bring up a link
// that is down.
func (v *furtherNode) cut() error {
	return nft(fmt.Sprintf(`table bridge %[1]s {
	chain from { type filter hook prerouting priority -500; iifname %[2]q drop; }
	chain to { type filter hook postrouting priority -500; oifname %[2]q drop; }
}`, v.rules(), v.link))
}

func (v *furtherNode) restore() error {
	return nft("table bridge " + v.rules() + "\ndelete table bridge " + v.rules())
}

// rules returns the name of the nftables table that drops the packets of the link.
func (v *furtherNode) rules() string { return "chaos-" + v.link }

func nft(text string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}
