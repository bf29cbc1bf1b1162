package build

import (
	"archive/tar"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"proa.dev/test/images/oci"
)

// archives builds the archives of all images and returns them by image. The programs come from modules and the packages from the
// network, so the tests are skipped on a machine that reaches neither.
func archives(t *testing.T, names ...string) map[string]*oci.Archive {
	t.Helper()
	if testing.Short() {
		t.Skip("images are not built in short tests")
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed, so no Debian packages can be unpacked")
	}
	paths, err := Archives(t.Context(), names...)
	if unreachable := new(url.Error); errors.As(err, &unreachable) {
		t.Skip("Debian packages cannot be fetched here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*oci.Archive{}
	for _, path := range paths {
		a, err := oci.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
		for _, name := range a.Names() {
			all[name] = a
		}
	}
	return all
}

// TestImages compares the images with testdata/images.txt, which has what other tests rely on.
func TestImages(t *testing.T) {
	all := archives(t)
	text, err := os.ReadFile("testdata/images.txt")
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for part := range strings.SplitSeq(string(text), "\n\n") {
		head, rest, _ := strings.Cut(strings.TrimSpace(part), "\n")
		if strings.HasPrefix(head, "#") {
			continue
		}
		described[head] = true
		t.Run(head, func(t *testing.T) {
			a := all[head]
			if a == nil {
				t.Fatal("no such image was built")
			}
			process, tree, err := a.Image(head)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(rest) {
				line = strings.TrimSpace(line)
				if got := describeImage(process, tree, line); got != line {
					t.Errorf("got  %s\nwant %s", got, line)
				}
			}
		})
	}
	for name := range all {
		if !described[name] {
			t.Errorf("testdata/images.txt says nothing of %s", name)
		}
	}
}

// describeImage returns what an image has of what a line of testdata/images.txt names.
func describeImage(p oci.Process, tree oci.Tree, line string) string {
	what, rest, _ := strings.Cut(line, " ")
	switch what {
	case "user":
		return strings.TrimSpace("user " + p.User)
	case "entrypoint":
		return "entrypoint " + strings.Join(p.Entrypoint, " ")
	case "cmd":
		return "cmd " + strings.Join(p.Cmd, " ")
	case "stop":
		return "stop " + p.StopSignal
	case "file": // path, mode, where links lead to
		name := strings.Fields(rest)[0]
		at, ok := tree.Resolve(name)
		if !ok {
			return "file " + name + " is not there"
		}
		f := tree[at]
		return fmt.Sprintf("file %s %04o %d:%d %s", name, f.Mode&0o7777, f.UID, f.GID, at)
	case "text": // path, a text that is in it
		name, want, _ := strings.Cut(rest, " ")
		if at, ok := tree.Resolve(name); ok && strings.Contains(string(tree[at].Data), want) {
			return line
		}
		return "text " + name + " is not there or does not hold it"
	case "no":
		if at, ok := tree.Resolve(rest); ok {
			return "there is " + at
		}
		return line
	}
	return "no test knows " + line
}

// TestTagsDiffer checks that images that differ only in a label have different digests.
func TestTagsDiffer(t *testing.T) {
	all := archives(t)
	for first, second := range map[string]string{
		e2e + "agnhost:2.66.1": e2e + "agnhost:2.55", ours + "tool:1": ours + "tool:2",
	} {
		one, _ := all[first].Digest(first)
		two, _ := all[second].Digest(second)
		if one == two {
			t.Errorf("%s and %s are both %s", first, second, one)
		}
	}
}

// TestLayersAreShared checks that images with the same base layers share their blobs.
func TestLayersAreShared(t *testing.T) {
	all := archives(t, "agnhost")
	under := func(name string) string {
		blobs, err := all[name].Blobs(name)
		if err != nil {
			t.Fatal(err)
		}
		return blobs[1] // after the config
	}
	base := under(e2e + "agnhost:2.66.1")
	for _, name := range []string{"agnhost:2.55", "nautilus:1.8", "kitten:1.8", "glibc-dns-testing:2.1.1", "nginx:1.27.0-2"} {
		if got := under(e2e + name); got != base {
			t.Errorf("%s stands on %s; want %s", name, got, base)
		}
	}
}

// TestPrograms runs programs of the images, each with the image as its root.
func TestPrograms(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change the root of a process")
	}
	all := archives(t, "busybox", "nonewprivs", "agnhost", "nginx", "tool")
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a page") }))
	defer page.Close()
	roots := map[string]string{}
	for _, test := range []struct {
		image, script string
		uid           uint32
		want          string
	}{
		{e2e + "busybox:1.37.0-2", "/bin/sh -c id", 0, "uid=0(root) gid=0(root)"},
		{e2e + "busybox:1.37.0-2", "/bin/sh -c id", 65534, "uid=65534(nobody) gid=65534(nogroup)"},
		{e2e + "busybox:1.37.0-2", "/bin/sh -c echo>/none/file", 0, "/bin/sh: can't create /none/file: nonexistent directory"},
		{e2e + "busybox:1.37.0-2", "/bin/sh -c env", 0, "data-1=value-1\n"}, // no identifier, and yet passed on
		{e2e + "busybox:1.37.0-2", "/bin/sh -c wget -T 5 -O - " + page.URL, 0, "a page"},
		{e2e + "nonewprivs:1.4", "/usr/local/bin/nnp", 1000, "Effective uid: 0"},
		{e2e + "agnhost:2.66.1", "/bin/sh -c id", 1000, "uid=1000(user-defined-in-image) gid=1000(user-defined-in-image)"},
		{e2e + "agnhost:2.66.1", "/agnhost-2 entrypoint-tester a", 1000, "[/agnhost-2 entrypoint-tester a]"},
		{e2e + "agnhost:2.66.1", "/usr/bin/curl --version", 0, "curl 7"},
		{e2e + "agnhost:2.66.1", "/usr/bin/dig -v", 0, "DiG 9"},
		{e2e + "agnhost:2.66.1", "/usr/bin/getent group 50000", 0, "group-defined-in-image:x:50000:user-defined-in-image"},
		{e2e + "agnhost:2.66.1", "/bin/ip -V", 0, "ip utility"},
		{e2e + "agnhost:2.66.1", "/usr/bin/nc -h", 0, "OpenBSD netcat"},
		{e2e + "agnhost:2.66.1", "/usr/bin/socat -V", 0, "socat by"},
		{e2e + "agnhost:2.66.1", "/usr/bin/wget --version", 0, "GNU Wget"},
		{e2e + "agnhost:2.66.1", "/bin/mount --version", 0, "mount from util-linux"},
		{e2e + "nginx:1.27.0-2", "/usr/sbin/nginx -t", 0, "configuration file /etc/nginx/nginx.conf test is successful"},
		{ours + "tool:1", "/tool show", 1000, "uid 1000 euid 1000 gid 1000 egid 1000"},
	} {
		root := roots[test.image]
		if root == "" {
			root = unpacked(t, all[test.image], test.image)
			roots[test.image] = root
		}
		t.Run(test.image+" "+test.script, func(t *testing.T) {
			args := strings.SplitN(test.script, " ", 3)
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir = "/"
			cmd.Env = append(os.Environ(), "data-1=value-1")
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: test.uid, Gid: test.uid}}
			out, err := cmd.CombinedOutput()
			if !strings.Contains(string(out), test.want) {
				t.Errorf("%s, %v; want %q", out, err, test.want)
			}
		})
	}
}

// unpacked writes the files of an image below a folder.
func unpacked(t *testing.T, a *oci.Archive, name string) string {
	_, tree, err := a.Image(name)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	var fs syscall.Statfs_t
	const nosuid, noexec = 2, 8
	if err := syscall.Statfs(root, &fs); err != nil || fs.Flags&(nosuid|noexec) != 0 {
		t.Skip("the folder for temporary files is mounted without programs or without setuid")
	}
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeTree(root, tree); err != nil {
		t.Fatal(err)
	}
	return root
}

// writeTree writes a tree, folders first, links last.
func writeTree(root string, tree oci.Tree) error {
	for _, pass := range []byte{tar.TypeDir, tar.TypeReg, tar.TypeLink, tar.TypeSymlink} {
		for name, f := range tree {
			at := filepath.Join(root, name)
			if f.Type != pass {
				continue
			}
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				return err
			}
			var err error
			switch pass {
			case tar.TypeDir:
				err = os.MkdirAll(at, 0o755)
			case tar.TypeReg:
				err = os.WriteFile(at, f.Data, 0o600)
			case tar.TypeLink:
				err = os.Link(filepath.Join(root, f.Link), at)
			case tar.TypeSymlink:
				err = os.Symlink(f.Link, at)
			}
			if err == nil && (pass == tar.TypeDir || pass == tar.TypeReg) {
				err = errors.Join(os.Lchown(at, f.UID, f.GID), syscall.Chmod(at, uint32(f.Mode)))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
