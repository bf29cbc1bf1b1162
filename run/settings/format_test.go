package settings

import (
	"reflect"
	"testing"
)

// TestFormat checks that ParseFile reads what Format has written.
func TestFormat(t *testing.T) {
	given := Values{"name": {"x"}, "tls-san": {"a.example", "b.example"}, "feature-gates": {"A=true"}, "listen": {"127.0.0.1:1"}}
	data, err := given.Format()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseFile(data)
	if err != nil || !reflect.DeepEqual(again, given) {
		t.Errorf("got %v (%v) of\n%s", again, err, data)
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte("listen: 0.0.0.0:7000\ntls-san: [a.example]\nfeature-gates: {A: true}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		given, err := ParseFile(data)
		if err != nil {
			return
		}
		delete(given, "data-dir") // its value depends on the working directory
		if _, err := Load("", given); err != nil {
			return
		}
		if _, err := given.Format(); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

// TestAbsolute checks that relative paths become absolute, so that settings that "up" stores mean the same in another working
// directory.
func TestAbsolute(t *testing.T) {
	t.Chdir("/usr")
	t.Setenv("HOME", "/home/x")
	given := Values{
		"bin-dir": {"lib"}, "registry-dir": {"a,/b", "~/c"}, "audit-log-path": {"-"}, "scheduler-config": {"../etc/s.yaml"},
		"name": {"lib"}, "data-dir": {"/d"},
		"resolv-conf": {"r"}, "etcd-cafile": {"ca"}, "pod-manifest-path": {"m"}, "admission-control-config-file": {"f"},
		"authentication-config": {"g"},
	}
	want := Values{
		"bin-dir": {"/usr/lib"}, "registry-dir": {"/usr/a,/b", "/home/x/c"}, "audit-log-path": {"-"}, "scheduler-config": {"/etc/s.yaml"},
		"name": {"lib"}, "data-dir": {"/d"},
		"resolv-conf": {"/usr/r"}, "etcd-cafile": {"/usr/ca"}, "pod-manifest-path": {"/usr/m"}, "admission-control-config-file": {"/usr/f"},
		"authentication-config": {"/usr/g"},
	}
	if err := given.Absolute(); err != nil || !reflect.DeepEqual(given, want) {
		t.Errorf("%v\ngot  %v\nwant %v", err, given, want)
	}
}
