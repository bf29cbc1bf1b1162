package run

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"proa.dev/run/datafolder"
	"proa.dev/run/settings"
)

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "proa.yaml")
	file := "listen: 0.0.0.0:7000\ntls-san: [a.example, 192.0.2.1]\nfeature-gates: {WatchList: true, APIResponseCompression: false}\nservice-cidr: 10.1.0.0/16,fd00::/112\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, settings.Values{"listen": {"127.0.0.1:8000"}, "log-level": {"debug"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:8000" {
		t.Errorf("the flag must win over the file, but listen is %s", c.Listen)
	}
	if want := []string{"a.example", "192.0.2.1"}; !reflect.DeepEqual(c.ExtraSANs, want) {
		t.Errorf("tls-san is %v, want %v", c.ExtraSANs, want)
	}
	if want := map[string]bool{"WatchList": true, "APIResponseCompression": false}; !reflect.DeepEqual(c.Features, want) {
		t.Errorf("feature-gates is %v, want %v", c.Features, want)
	}
	if len(c.ServiceCIDRs) != 2 || c.Name != "proa" {
		t.Errorf("got %+v", c)
	}
}

// TestInvalidSettings checks the errors for invalid values of settings.
func TestInvalidSettings(t *testing.T) {
	for flag, want := range map[string]string{
		"listen=here":                                            `--listen: "here" is not ADDR:PORT, for example 127.0.0.1:6443 or 0.0.0.0:6443`,
		"listen=example.com:1":                                   `--listen: "example.com" is not an IP address; names go into tls-san`,
		"listen=127.0.0.1:70000":                                 `--listen: "70000" is not a port`,
		"name=My_Cluster":                                        `--name: "My_Cluster": a lowercase RFC 1123 subdomain`,
		"service-cidr=10.0.0.0":                                  `--service-cidr: "10.0.0.0" is not a range such as 10.96.0.0/16`,
		"service-cidr=10.0.0.1/16":                               `--service-cidr: "10.0.0.1/16" has bits after its length; did you mean 10.0.0.0/16`,
		"service-cidr=10.0.0.0/16,11.0.0.0/8":                    `--service-cidr: two ranges must be of different families`,
		"service-cidr=10.0.0.0/31":                               `--service-cidr: "10.0.0.0/31" is too small`,
		"tls-san=a_b":                                            `--tls-san: "a_b" is neither a DNS name nor an IP address`,
		"node-address-ranges=192.0.2.7":                          `--node-address-ranges: "192.0.2.7" is not a network such as 192.168.10.0/24`,
		"node-address-ranges=192.0.2.7/24":                       `--node-address-ranges: "192.0.2.7/24" has bits after its length; did you mean 192.0.2.0/24`,
		"etcd-servers=10.0.0.1:2379":                             `--etcd-servers: "10.0.0.1:2379" is not a URL such as https://10.0.0.1:2379`,
		"etcd-cafile=/no/such/file":                              `--etcd-cafile: open /no/such/file: no such file or directory`,
		"feature-gates=WatchList":                                `--feature-gates: missing bool value for WatchList`,
		"feature-gates=WatchList=maybe":                          `--feature-gates: invalid value of WatchList=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax`,
		"feature-gates=NoSuchThing=true":                         `--feature-gates: unrecognized feature gate: NoSuchThing`,
		"feature-gates=SELinuxMount=true,ServerSideApplies=true": `--feature-gates: unrecognized feature gate: ServerSideApplies`,
		"max-requests-inflight=-1":                               `--max-requests-inflight: "-1" is not a number between 0 and 20000`,
		"service-account-issuer=proa":                            `--service-account-issuer: "proa" is not an https URL without query`,
		"log-level=loud":                                         `--log-level: "loud" is none of debug, info, warn and error`,
		"controllers=*,-nope":                                    `controllers: there is no "nope"; there are: `,
		"controllers=job-controler":                              `controllers: there is no "job-controler"; there are: `,
		"http2=fast":                                             `--http2: "fast" is none of own, std`,
		"data-dir=":                                              `--data-dir: the value is empty`,
	} {
		name, value, _ := strings.Cut(flag, "=")
		_, err := Load("", settings.Values{name: {value}})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s…", flag, err, want)
		}
	}
}

// TestSchedulerConfig checks that an invalid configuration of the scheduler is an error at start.
func TestSchedulerConfig(t *testing.T) {
	head := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	for file, want := range map[string]string{
		head + "parallelism: 2\n": "",
		head + "parallelism: 0\n": "scheduler configuration: parallelism: Invalid value: 0",
		head + "profiles: [{plugins: {multiPoint: {enabled: [{name: GangScheduling}]}}}]\n": "the plugin GangScheduling reads podgroups.scheduling.k8s.io, which this server does not serve; take the plugin out",
	} {
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load("", settings.Values{"scheduler-config": {path}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got error %v, want %q", file, err, want)
		}
	}
	if _, err := Load("", settings.Values{"controllers": {"*,-job-controller,-kube-scheduler"}}); err != nil {
		t.Error(err)
	}
}

func TestInvalidConfigFile(t *testing.T) {
	for file, want := range map[string]string{
		"lisen: x":                   `line 1: there is no setting "lisen"`,
		"name: a\n\nname: b":         `line 3: name is given twice`,
		"- a":                        `line 1: the file must be a mapping`,
		"name: a\nlisten: [a, b]":    `line 2: listen must be one value`,
		"tls-san: [[a]]":             `line 1: the items of tls-san must be plain values`,
		"tls-san: {a: b}":            `line 1: tls-san must be a value or a list`,
		"name: [":                    `yaml: line 1`,
		"name:":                      `line 1: name must be one value`,
		strings.Repeat("#", 1<<20+1): `a config file of 1048577 bytes is too large`,
	} {
		_, err := settings.ParseFile([]byte(file))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: got error %v, want %s…", file, err, want)
		}
	}
}

// TestDataDirSymlinksAreResolved checks that a data folder has one path whichever symbolic links lead to it, and whether or not
// it exists: nodes derive names from that path.
func TestDataDirSymlinksAreResolved(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(base, name) }
	if err := os.MkdirAll(at("disk/there"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"link": "disk/there", "parent": at("disk"), "later": "disk/not/yet", "twice": at("link"),
		"loop": "loop"} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(base)
	for path, want := range map[string]string{
		"disk/there": "disk/there", "link": "disk/there", "twice": "disk/there", "parent/there": "disk/there",
		"later": "disk/not/yet", "parent/new/one": "disk/new/one", "new": "new",
	} {
		for _, p := range []string{path, at(path)} {
			c, err := Load("", settings.Values{"data-dir": {p}})
			if err != nil || c.DataDir != at(want) {
				t.Errorf("%s is %s, %v, want %s", p, c.DataDir, err, at(want))
			}
		}
	}
	if got, err := datafolder.Resolve(at("loop")); err == nil {
		t.Errorf("a link to itself is %s", got)
	}
}
