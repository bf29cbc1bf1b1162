package runtime

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; -update writes it\n%s", file, got)
	}
}

func TestConfigurations(t *testing.T) {
	full := hostFacts{Resource: true, AppArmor: true, SELinux: true, Overlay: true}
	small := Config{DataDir: "/var/lib/proa/runtime", BinDir: "/opt/proa/bin"}
	for name, c := range map[string]struct {
		config Config
		facts  hostFacts
	}{
		"plain.toml": {small, full},
		"poor.toml":  {small, hostFacts{}},
		"rich.toml": {Config{
			DataDir: "/srv/a folder/" + strings.Repeat("deep/", 20), BinDir: "/opt/\"quoted\"", CNIBinDirs: []string{"/opt/cni/bin"},
			CNIConfDir:    "/etc/cni/net.d",
			SystemdCgroup: true, DefaultHandler: "crun", RegistryDirs: []string{"/a", "/b"}, MaxDownloads: 7, Snapshotter: "native",
			LogLevel: "debug",
			Handlers: []Handler{{Name: "crun", Binary: "/usr/bin/crun", PodAnnotations: []string{"io.example.*"}},
				{Name: "kata", Type: "io.containerd.kata.v2"}},
		}, full},
	} {
		c.config = c.config.withDefaults()
		if err := c.config.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text := render(c.config, newLayout(c.config.DataDir), c.facts)
		golden(t, name, strings.ReplaceAll(text, platform().text(), "linux/PLATFORM"))
	}
}

func TestInvalidSettings(t *testing.T) {
	good := Config{DataDir: "/d", BinDir: "/b"}
	for want, change := range map[string]func(*Config){
		`folder "relative"`:       func(c *Config) { c.DataDir = "relative" },
		`folder "/a:b"`:           func(c *Config) { c.RegistryDirs = []string{"/a:b"} },
		`folder "/a\nb"`:          func(c *Config) { c.BinDir = "/a\nb" },
		`folder ""`:               func(c *Config) { c.BinDir = "" },
		`handler "A"`:             func(c *Config) { c.Handlers = []Handler{{Name: "A"}} },
		`"x" is given twice`:      func(c *Config) { c.Handlers = []Handler{{Name: "x"}, {Name: "x"}} },
		`default runtime handler`: func(c *Config) { c.DefaultHandler = "gvisor" },
		`control characters in`:   func(c *Config) { c.Handlers = []Handler{{Name: "x", Binary: "/a\x00"}} },
		`snapshotter "zfs"`:       func(c *Config) { c.Snapshotter = "zfs" },
		`log level "loud"`:        func(c *Config) { c.LogLevel = "loud" },
		`negative`:                func(c *Config) { c.MaxDownloads = -1 },
	} {
		c := good
		change(&c)
		if err := c.withDefaults().check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestSocketsAreShort(t *testing.T) {
	for depth := range 40 {
		l := newLayout("/var/lib/proa/" + strings.Repeat("deep/", depth))
		if len(l.socket+".ttrpc") > socketLimit || len(l.shims) > shimLimit {
			t.Errorf("%s has the sockets %s and %s", l.dir, l.socket, l.shims)
		}
	}
	if l := newLayout("/var/lib/proa/runtime"); l.run != l.dir {
		t.Errorf("the sockets are in %s, though %s is short enough", l.run, l.dir)
	}
	if a, b := newLayout("/"+strings.Repeat("a", 80)), newLayout("/"+strings.Repeat("b", 80)); a.run == b.run {
		t.Error("two runtimes share their sockets")
	}
}

func TestStateOfEarlierBootIsRemoved(t *testing.T) {
	l := newLayout(t.TempDir())
	l.run, l.shims = l.dir, filepath.Join(l.dir, "s") // no sockets are created
	if err := l.make(); err != nil {
		t.Fatal(err)
	}
	old, kept := filepath.Join(l.state, "old"), filepath.Join(l.root, "kept")
	write := func(file string) {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(file string) bool { _, err := os.Stat(file); return err == nil }
	write(old)
	write(kept)
	if err := os.WriteFile(l.boot, []byte("another boot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.forgetOldBoot(); err != nil || exists(old) || !exists(kept) {
		t.Errorf("after a boot: %v, state exists %t, images exist %t", err, exists(old), exists(kept))
	}
	write(old)
	if err := l.forgetOldBoot(); err != nil || !exists(old) {
		t.Errorf("in the same boot: %v, state exists %t", err, exists(old))
	}
}

func TestCapability(t *testing.T) {
	status := []byte("Name:\tx\nCapEff:\t0000000001000000\nCapBnd:\t000001ffffffffff\n")
	if !capability(status, 24) || capability(status, 21) || capability(nil, 24) || capability([]byte("CapEff:\tnonsense\n"), 24) {
		t.Error("capabilities are parsed wrongly")
	}
}

func TestFullName(t *testing.T) {
	for short, want := range map[string]string{
		"busybox":                    "docker.io/library/busybox:latest",
		"busybox:1":                  "docker.io/library/busybox:1",
		"user/app":                   "docker.io/user/app:latest",
		"docker.io/busybox":          "docker.io/library/busybox:latest",
		"index.docker.io/busybox:1":  "docker.io/library/busybox:1",
		"localhost/x":                "localhost/x:latest",
		"localhost:5000/x":           "localhost:5000/x:latest",
		"registry.k8s.io/pause:3.10": "registry.k8s.io/pause:3.10",
		"proa.dev/pause@sha256:ab":   "proa.dev/pause@sha256:ab",
		"a/b/c@sha256:ab":            "docker.io/a/b/c@sha256:ab",
	} {
		if got := fullName(short); got != want {
			t.Errorf("%s is %s, want %s", short, got, want)
		}
		if again := fullName(want); again != want {
			t.Errorf("%s is %s", want, again)
		}
	}
}

func TestPauseArchive(t *testing.T) {
	one, err := pauseArchive([]byte("program"), platform())
	if err != nil {
		t.Fatal(err)
	}
	two, err := pauseArchive([]byte("program"), platform())
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("the same program gives another archive, %v", err)
	}
	other, err := pauseArchive([]byte("another"), platform())
	if err != nil {
		t.Fatal(err)
	}
	images, err := imagesIn(bytes.NewReader(one))
	if err != nil || len(images) != 1 || images[0].name != PauseImage {
		t.Fatalf("the archive has %v, %v", images, err)
	}
	if others, err := imagesIn(bytes.NewReader(other)); err != nil || others[0].digest == images[0].digest {
		t.Errorf("another program gives the same image, %v", err)
	}
}

func TestImagesInArchives(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, c := range map[string]struct {
		file, text string
		want       []archivedImage
		fails      bool
	}{
		"named":     {"index.json", `{"manifests":[{"digest":"sha256:a","annotations":{"io.containerd.image.name":"x.io/a:1","org.opencontainers.image.ref.name":"1"}}]}`, []archivedImage{{name: "x.io/a:1", digest: "sha256:a"}}, false},
		"only tags": {"./index.json", `{"manifests":[{"digest":"sha256:a","annotations":{"org.opencontainers.image.ref.name":"v2"}}]}`, []archivedImage{{name: "localhost/loaded:v2", digest: "sha256:a"}}, false},
		"short":     {"index.json", `{"manifests":[{"digest":"sha256:a","annotations":{"org.opencontainers.image.ref.name":"busybox:1"}}]}`, []archivedImage{{name: "docker.io/library/busybox:1", digest: "sha256:a"}}, false},
		"unnamed":   {"index.json", `{"manifests":[{"digest":"sha256:a"}]}`, nil, false},
		"nonsense":  {"index.json", `{`, nil, true},
		"docker": {"manifest.json", `[{"Config":"blobs/sha256/` + id + `","RepoTags":["a:1","b.io/c"]}]`,
			[]archivedImage{{name: "docker.io/library/a:1", id: "sha256:" + id}, {name: "b.io/c:latest", id: "sha256:" + id}}, false},
		"old names": {"manifest.json", `[{"Config":"` + id + `.json","RepoTags":["a:1"]}]`,
			[]archivedImage{{name: "docker.io/library/a:1", id: "sha256:" + id}}, false},
		"no ids":    {"manifest.json", `[{"Config":"config.json","RepoTags":["a:1"]}]`, nil, false},
		"something": {"README", "hello", nil, false},
	} {
		data, err := tarOf([]file{{"other", bytes.Repeat([]byte("x"), 5000), 0o644}, {c.file, []byte(c.text), 0o644}})
		if err != nil {
			t.Fatal(err)
		}
		for form, archive := range map[string]io.Reader{"file": bytes.NewReader(data), "pipe": struct{ io.Reader }{bytes.NewReader(data)},
			"zip": bytes.NewReader(gzipped(t, data))} {
			got, err := imagesIn(archive)
			if !reflect.DeepEqual(got, c.want) || (err != nil) != c.fails {
				t.Errorf("%s, %s: %v, %v; want %v", name, form, got, err, c.want)
			}
		}
	}
	if _, err := imagesIn(iotest.ErrReader(io.ErrUnexpectedEOF)); err == nil {
		t.Error("an archive that cannot be read has contents")
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(message{}.text(1, "name").bytes(2, message{}.text(1, "k").text(2, "v")).bytes(3, message{}.text(2, "sha256:a")).number(9,
		7)))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = readImage(data)
		_, _ = window(data)
	})
}

func FuzzContents(f *testing.F) {
	seed, err := pauseArchive([]byte("program"), platform())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = imagesIn(bytes.NewReader(data)) })
}
