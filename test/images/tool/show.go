package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
)

// show prints what a container sees of itself, a line each, so that tests can
// look for what they asked for.
func show(ctx context.Context, out io.Writer, args []string) error {
	f := flags("show")
	stay := f.Bool("stay", false, "stay afterwards")
	if err := f.Parse(args); err != nil {
		return err
	}
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	slices.Sort(groups)
	fmt.Fprintf(out, "uid %d euid %d gid %d egid %d groups %v pid %d\n", os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid(), groups,
		os.Getpid())
	if host, err := os.Hostname(); err == nil {
		fmt.Fprintln(out, "hostname", host)
	}
	if dir, err := os.Getwd(); err == nil {
		fmt.Fprintln(out, "workdir", dir)
	}
	fmt.Fprintln(out, "args", strings.Join(os.Args, " "))
	if err := showStatus(out); err != nil {
		return err
	}
	for _, name := range []string{"oom_score_adj", "cgroup"} {
		data, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			fmt.Fprintln(out, name, strings.TrimSpace(line))
		}
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
		fmt.Fprintf(out, "nofile %d %d\n", files.Cur, files.Max)
	}
	env := os.Environ()
	slices.Sort(env)
	for _, e := range env {
		fmt.Fprintln(out, "env", e)
	}
	if *stay {
		<-ctx.Done()
	}
	return nil
}

// showStatus prints the security settings of the process; capabilities by name.
func showStatus(out io.Writer) error {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb":
			fmt.Fprintln(out, key, capabilities(value))
		case "NoNewPrivs", "Seccomp", "Seccomp_filters":
			fmt.Fprintln(out, key, value)
		}
	}
	return lines.Err()
}

// capabilities names the bits of a mask in hexadecimal digits.
func capabilities(mask string) string {
	names := strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
		NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
		SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM
		BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)
	var bits uint64
	if _, err := fmt.Sscanf(mask, "%x", &bits); err != nil {
		return mask
	}
	var set []string
	for i, name := range names {
		if bits&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	if len(set) == 0 {
		return "none"
	}
	return strings.Join(set, " ")
}
