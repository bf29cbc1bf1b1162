package build

import (
	"maps"

	"proa.dev/test/images/oci"
)

// The beginnings of names: what the suite calls its images, and our own.
const (
	k8s  = "registry.k8s.io/"
	e2e  = k8s + "e2e-test-images/"
	ours = "proa.test/"
)

// usualPath is where images find their programs.
const usualPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// sets are all archives that can be made.
func sets() []set {
	return []set{
		{name: "tool", images: []string{"tool"}, own: []string{"test/images/tool"}, cook: toolImages},
		{name: "pause", images: []string{"pause"}, own: []string{"cmd/pause"}, cook: cookPause},
		{name: "busybox", images: []string{"busybox", "nonewprivs"}, busybox: true, programs: []string{"nonewprivs"}, cook: busyboxImages},
		{name: "apiserver", images: []string{"sample-apiserver", "etcd"}, programs: []string{"sample-apiserver", "etcd"},
			cook: cookAPIServer},
		{name: "gateway", images: []string{"echo-basic"}, programs: []string{"echo-basic"}, asked: true, cook: gatewayImages},
		{name: "cert-manager", images: certManagerPrograms(), programs: certManagerPrograms(), asked: true, cook: cookCertManager},
		{name: "metrics-server", images: []string{"metrics-server"}, programs: []string{"metrics-server"}, asked: true,
			cook: cookMetricsServer},
		{
			name:     "debian",
			images:   []string{"agnhost", "agnhost-prev", "nautilus", "kitten", "glibc-dns-testing", "nginx"},
			groups:   []string{"debian", "nginx"},
			programs: []string{"agnhost"},
			data: []string{
				"agnhost/porter/localhost.crt", "agnhost/porter/localhost.key",
				"nautilus/html/data.json", "nautilus/html/nautilus.jpg", "kitten/html/data.json", "kitten/html/kitten.jpg",
			},
			cook: debianImages,
		},
	}
}

// toolImages makes the smallest image that is useful for tests. The second tag is the same with another digest, for
// tests of images that change.
func toolImages(in inputs) ([]oci.Image, error) {
	t := oci.Tree{}
	t.Put("tool", 0o755, in.programs["tool"])
	t.Dir(0o1777, "tmp")
	t.Text("etc/passwd", "root:x:0:0:root:/:/tool\nuser:x:1000:1000:user:/:/tool\nnobody:x:65534:65534:nobody:/:/tool\n")
	t.Text("etc/group", "root:x:0:\nuser:x:1000:\nextra:x:50000:user\nnogroup:x:65534:\n")
	t.Parents()
	layer, err := t.Layer()
	if err != nil {
		return nil, err
	}
	process := oci.Process{Env: []string{"PATH=/"}, Entrypoint: []string{"/tool"}, Cmd: []string{"sleep"}, WorkingDir: "/"}
	second := labelled(process, "2")
	return []oci.Image{
		{Names: []string{ours + "tool:1"}, Process: process, Layers: []oci.Layer{layer}},
		{Names: []string{ours + "tool:2"}, Process: second, Layers: []oci.Layer{layer}},
	}, nil
}

// labelled is a process with a label that changes the digest of the image, and nothing else.
func labelled(p oci.Process, version string) oci.Process {
	p.Labels = maps.Clone(p.Labels)
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels["org.opencontainers.image.version"] = version
	return p
}

func cookPause(in inputs) ([]oci.Image, error) {
	t := oci.Tree{}
	t.Put("pause", 0o755, in.programs["pause"])
	layer, err := t.Layer()
	if err != nil {
		return nil, err
	}
	process := oci.Process{User: "65535:65535", Env: []string{usualPath}, Entrypoint: []string{"/pause"}, WorkingDir: "/"}
	return []oci.Image{{Names: []string{k8s + "pause:3.10.2"}, Process: process, Layers: []oci.Layer{layer}}}, nil
}

// gatewayImages makes the backends of the conformance suite of the Gateway API, under all names that its manifests use.
func gatewayImages(in inputs) ([]oci.Image, error) {
	t := oci.Tree{}
	t.Put("echo-basic", 0o755, in.programs["echo-basic"])
	t.Dir(0o1777, "tmp")
	layer, err := t.Layer()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, version := range []string{"v1.5.1", "v1.6.0-dev.2", "v1.6.0-dev.3"} {
		names = append(names, k8s+"gateway-api/echo-basic:"+version)
	}
	process := oci.Process{User: "65532:65532", Env: []string{usualPath}, Entrypoint: []string{"/echo-basic"}, WorkingDir: "/"}
	// The suite waits for CoreDNS too, which only UDPRoutes lead to. Nobody serves these here, so nobody asks what stands in for it.
	names = append(names, k8s+"coredns/coredns:v1.12.2")
	return []oci.Image{{Names: names, Process: process, Layers: []oci.Layer{layer}}}, nil
}

func cookAPIServer(in inputs) ([]oci.Image, error) {
	server := oci.Tree{}
	server.Put("sample-apiserver", 0o755, in.programs["sample-apiserver"])
	server.Dir(0o1777, "tmp")
	store := oci.Tree{}
	store.Put("usr/local/bin/etcd", 0o755, in.programs["etcd"])
	store.Dir(0o1777, "tmp")
	store.Parents()
	first, err := server.Layer()
	if err != nil {
		return nil, err
	}
	second, err := store.Layer()
	if err != nil {
		return nil, err
	}
	process := oci.Process{Env: []string{usualPath}, WorkingDir: "/"}
	served := process
	served.Entrypoint = []string{"/sample-apiserver"}
	return []oci.Image{
		{Names: []string{e2e + "sample-apiserver:1.29.2"}, Process: served, Layers: []oci.Layer{first}},
		{Names: []string{k8s + "etcd:3.7.0-0"}, Process: process, Layers: []oci.Layer{second}},
	}, nil
}
