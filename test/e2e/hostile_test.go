package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/test/images/oci"
)

// hostileImages writes an archive of malicious images for testdata/node/attacks.txt. It also returns the folder on the host into
// which they try to write, which must stay empty.
func hostileImages(t *testing.T) (archive, target string) {
	t.Helper()
	tool, err := oci.Open(archives(t, "tool")[0])
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	process, tree, err := tool.Image("proa.test/tool:1")
	if err != nil {
		t.Fatal(err)
	}
	target = t.TempDir()
	up := strings.Repeat("../", 40)
	climber := oci.Tree{}
	climber.Text(up+strings.TrimPrefix(target, "/")+"/by-dots", "gotcha")
	climber.Link("out", target)
	climber.Text("out/by-link", "gotcha")
	crowd := oci.Tree{}
	crowd.Text("etc/group", "extra:x:50000:user\n"+strings.Repeat("g:x:7:"+strings.Repeat("user,", 1000)+"\n", 8000))
	layer := func(tree oci.Tree) oci.Layer {
		l, err := tree.Layer()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	base := layer(tree)
	as := func(user string) oci.Process {
		p := process
		p.User = user
		return p
	}
	labelled := process
	labelled.Labels = map[string]string{"big": strings.Repeat("x", 4<<20),
		"$(touch " + target + "/by-label)": "`touch " + target + "/by-label`"}
	path := filepath.Join(t.TempDir(), "hostile.tar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := oci.Write(file,
		oci.Image{Names: []string{"proa.test/byname:1"}, Process: as("user"), Layers: []oci.Layer{base}},
		oci.Image{Names: []string{"proa.test/toohigh:1"}, Process: as("4294967296"), Layers: []oci.Layer{base}},
		oci.Image{Names: []string{"proa.test/longname:1"}, Process: as(strings.Repeat("u", 1<<20)), Layers: []oci.Layer{base}},
		oci.Image{Names: []string{"proa.test/crowd:1"}, Process: as("user"), Layers: []oci.Layer{base, layer(crowd)}},
		oci.Image{Names: []string{"proa.test/labels:1"}, Process: labelled, Layers: []oci.Layer{base}},
		oci.Image{Names: []string{"proa.test/climber:1"}, Process: process, Layers: []oci.Layer{base, layer(climber)}},
	); err != nil {
		t.Fatal(err)
	}
	return path, target
}
