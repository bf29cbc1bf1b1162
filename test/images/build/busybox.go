package build

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"proa.dev/test/images/oci"
)

// busyboxImages makes the image of many small programs in one, laid out as the usual busybox image is: every program is
// in /bin.
func busyboxImages(in inputs) ([]oci.Image, error) {
	program := in.programs["busybox"]
	applets, err := listApplets(program)
	if err != nil {
		return nil, err
	}
	t := oci.Tree{}
	t.Put("bin/busybox", 0o755, program)
	for _, name := range applets {
		if name != "busybox" {
			t.Link("bin/"+name, "busybox")
		}
	}
	t.Dir(0o755, "dev", "home", "proc", "sys", "usr/sbin", "usr/local/bin", "var/spool/mail", "var/www")
	t.Dir(0o700, "root")
	t.Dir(0o1777, "tmp", "var/tmp")
	t.Link("usr/bin/env", "../../bin/busybox")
	t.Text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\nwww-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n")
	t.Text("etc/group", "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nusers:x:100:\nnogroup:x:65534:\n")
	t.Put("etc/shadow", 0o640, []byte("root:*::0:::::\nnobody:*::0:::::\n"))
	t.Text("etc/nsswitch.conf", "hosts: files dns\n")
	t.Parents()
	base, err := t.Layer()
	if err != nil {
		return nil, err
	}
	above := oci.Tree{}
	above.Put("usr/local/bin/nnp", 0o4755, in.programs["nonewprivs"])
	setuid, err := above.Layer()
	if err != nil {
		return nil, err
	}
	process := oci.Process{Env: []string{usualPath}, Cmd: []string{"sh"}, WorkingDir: "/"}
	raised := process
	raised.Cmd = []string{"nnp"}
	return []oci.Image{
		{Names: []string{e2e + "busybox:1.37.0-2", ours + "busybox:1"}, Process: process, Layers: []oci.Layer{base}},
		{Names: []string{e2e + "nonewprivs:1.4"}, Process: raised, Layers: []oci.Layer{base, setuid}},
	}, nil
}

// listApplets asks busybox which programs it is.
func listApplets(program []byte) ([]string, error) {
	dir, err := os.MkdirTemp("", "images-busybox-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "busybox")
	if err := os.WriteFile(name, program, 0o755); err != nil {
		return nil, err
	}
	out, err := exec.Command(name, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	return strings.Fields(string(out)), nil
}
