package build

import (
	"fmt"
	"strings"

	"proa.dev/test/images/oci"
)

// debianImages makes the images that are based on Debian: one large layer, shared by all of them, with little above it.
func debianImages(in inputs) ([]oci.Image, error) {
	root := in.packages["debian"]
	if err := configure(root); err != nil {
		return nil, err
	}
	base, err := root.Layer()
	if err != nil {
		return nil, err
	}
	agnhost, err := agnhostTree(in).Layer()
	if err != nil {
		return nil, err
	}
	web, err := nginxTree(in.packages["nginx"]).Layer()
	if err != nil {
		return nil, err
	}
	process := oci.Process{
		Env: []string{usualPath}, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, WorkingDir: "/",
		ExposedPorts: map[string]struct{}{"80/tcp": {}, "5000/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9376/tcp": {}},
	}
	serve := process
	serve.Cmd = []string{"test-webserver"}
	images := []oci.Image{
		{Names: []string{e2e + "agnhost:2.66.1"}, Process: process, Layers: []oci.Layer{base, agnhost}},
		{Names: []string{e2e + "agnhost:2.55"}, Process: labelled(process, "2.55"), Layers: []oci.Layer{base, agnhost}},
		{Names: []string{e2e + "glibc-dns-testing:2.1.1"},
			Process: oci.Process{Env: []string{usualPath}, Cmd: []string{"bash"}, WorkingDir: "/"}, Layers: []oci.Layer{base}},
		{Names: []string{e2e + "nginx:1.27.0-2"}, Process: nginxProcess(), Layers: []oci.Layer{base, web}},
	}
	for _, animal := range []string{"nautilus", "kitten"} {
		t := oci.Tree{}
		t.Put("data.json", 0o644, in.data[animal+"/html/data.json"])
		t.Put(animal+".jpg", 0o644, in.data[animal+"/html/"+animal+".jpg"])
		page, err := t.Layer()
		if err != nil {
			return nil, err
		}
		images = append(images, oci.Image{Names: []string{e2e + animal + ":1.8"}, Process: serve, Layers: []oci.Layer{base, agnhost, page}})
	}
	return images, nil
}

// configure does what the scripts of the packages would have done.
func configure(root oci.Tree) error {
	rootLinks(root)
	for to, from := range map[string]string{
		"etc/passwd":        "usr/share/base-passwd/passwd.master",
		"etc/group":         "usr/share/base-passwd/group.master",
		"etc/nsswitch.conf": "usr/share/libc-bin/nsswitch.conf",
		"etc/profile":       "usr/share/base-files/profile",
	} {
		f, ok := root[from]
		if !ok {
			return fmt.Errorf("the Debian packages lack /%s, from which /%s is made", from, to)
		}
		root.Put(to, 0o644, f.Data)
	}
	// The alternatives, of which each group has one.
	for name, target := range map[string]string{"awk": "mawk", "nc": "nc.openbsd", "netcat": "nc.openbsd", "which": "which.debianutils"} {
		if _, ok := root["usr/bin/"+target]; !ok {
			return fmt.Errorf("the Debian packages lack /usr/bin/%s", target)
		}
		root.Link("usr/bin/"+name, target)
	}
	if _, there := root["usr/bin/sh"]; !there {
		root.Link("usr/bin/sh", "dash")
	}
	root.Dir(0o755, "usr/local/bin", "usr/local/sbin")
	root.Parents()
	return nil
}

// agnhostTree is the program that most tests of the suite run, with the files
// and the user that it comes with.
func agnhostTree(in inputs) oci.Tree {
	t := oci.Tree{}
	t.Put("agnhost", 0o755, in.programs["agnhost"])
	t.Link("agnhost-2", "agnhost")
	t.Dir(0o755, "uploads")
	t.Put("localhost.crt", 0o644, in.data["agnhost/porter/localhost.crt"])
	t.Put("localhost.key", 0o644, in.data["agnhost/porter/localhost.key"])
	t.Link("usr/local/bin/iperf", "/usr/bin/iperf")
	root := in.packages["debian"]
	t.Text("etc/passwd", string(root["etc/passwd"].Data)+"user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n")
	t.Text("etc/group", string(root["etc/group"].Data)+"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
	t["home/user-defined-in-image"] = oci.File{Type: '5', Mode: 0o755, UID: 1000, GID: 1000}
	return t
}

// nginxTree keeps the program and the page of the packages, with a short
// configuration that writes to the output of the container.
func nginxTree(packages oci.Tree) oci.Tree {
	t := oci.Tree{}
	for _, name := range []string{"usr/sbin/nginx", "usr/share/nginx/html/index.html", "etc/nginx/mime.types"} {
		t[name] = packages[name]
	}
	t.Dir(0o755, "etc/nginx", "usr/share/nginx", "usr/share/nginx/html", "var/lib/nginx", "var/log/nginx")
	t.Link("var/log/nginx/access.log", "/dev/stdout")
	t.Link("var/log/nginx/error.log", "/dev/stderr")
	t.Text("etc/nginx/nginx.conf", strings.Join([]string{
		"user www-data;", "worker_processes 1;", "error_log /var/log/nginx/error.log notice;", "pid /run/nginx.pid;",
		"events { worker_connections 512; }",
		"http {", "  include mime.types;", "  access_log /var/log/nginx/access.log;",
		"  server { listen 80; listen [::]:80; root /usr/share/nginx/html; }", "}", "",
	}, "\n"))
	return t
}

func nginxProcess() oci.Process {
	return oci.Process{
		Env: []string{usualPath}, Cmd: []string{"nginx", "-g", "daemon off;"}, WorkingDir: "/",
		ExposedPorts: map[string]struct{}{"80/tcp": {}}, StopSignal: "SIGQUIT",
	}
}
