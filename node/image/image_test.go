package image

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/nodetest"
	"proa.dev/node/pod"
	"proa.dev/node/podtrace"
	"proa.dev/test/program"
)

var _ pod.Images = (*Images)(nil)

var discardLog = slog.New(slog.DiscardHandler)

func TestParseName(t *testing.T) {
	nodetest.Cases(t, "testdata/names.txt", func(t *testing.T, input string) string {
		text := strings.TrimSpace(input)
		n, err := ParseName(text)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s tag=%q digest=%q asked for as %s, known as %s", n.Repository, n.Tag, n.Digest, tagged(text, n), plain(text))
	})
}

func FuzzParseName(f *testing.F) {
	f.Add("quay.io/a/b:1@sha256:" + strings.Repeat("a", 64))
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseName(text)
		if err != nil {
			return
		}
		full := n.Repository + ":" + n.Tag
		if n.Digest != "" {
			full = n.Repository + "@" + n.Digest
		}
		again, err := ParseName(full)
		if err != nil || again.Repository != n.Repository {
			t.Errorf("%q means %q, which means %q: %v", text, full, again.Repository, err)
		}
	})
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, image string
		want           bool
	}{
		{"quay.io", "quay.io/a/b", true}, {"quay.io/a", "quay.io/a/b", true}, {"quay.io/b", "quay.io/a/b", false},
		{"*.io", "quay.io/a", true}, {"*.io", "a.quay.io/a", false}, {"*.*.io", "a.quay.io/a", true}, {"q*.io", "quay.io/a", true},
		{"quay.io:443", "quay.io/a", false}, {"*.io:5000", "quay.io:5000/a", true}, {"[", "quay.io/a", false},
	} {
		if got := matches(c.pattern, c.image); got != c.want {
			t.Errorf("%s and %s: %v", c.pattern, c.image, got)
		}
	}
}

func TestLoginIndex(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("bob:a:b"))
	json := `{"auths": {"https://index.docker.io/v1/": {"auth": "` + auth + `"}, "quay.io/org": {"username": "narrow", "password": "x"}, "quay.io": {"username": "wide", "password": "x"}}}`
	k := &loginIndex{}
	if err := k.addSecret(&corev1.Secret{Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(json)}}); err != nil {
		t.Fatal(err)
	}
	old := `{"old.example": {"username": "o", "password": "p"}}`
	if err := k.addSecret(&corev1.Secret{Type: corev1.SecretTypeDockercfg,
		Data: map[string][]byte{corev1.DockerConfigKey: []byte(old)}}); err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string]string{
		"docker.io/library/busybox": "bob/a:b ", "quay.io/org/app": "narrow/x wide/x ", "quay.io/other": "wide/x ", "old.example/a": "o/p ",
		"none.example/a": "",
	} {
		var got string
		for _, l := range k.find(repository) {
			got += l.Username + "/" + l.Password + " "
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", repository, got, want)
		}
	}
	bad := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths": "s3cret`)}}
	bad.Name = "bad"
	if err := k.addSecret(bad); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}

// fakeRuntime is a container runtime with a registry. It also serves Secrets and records Events.
type fakeRuntime struct {
	mu          sync.Mutex // guards images, pulls and events
	images      map[string]*cri.Image
	used        []string
	pulls       int
	pullTime    time.Duration
	maxPulls    int // the largest number of concurrent pulls
	activePulls int
	events      []string
	size        uint64
	free        uint64
}

func newFakeRuntime() *fakeRuntime {
	return &fakeRuntime{size: 1000, free: 500, images: map[string]*cri.Image{
		"here:1": {Id: "id-here"}, "here:latest": {Id: "id-here"}, "private:1": {Id: "id-private"}, "free:1": {Id: "id-free"},
	}}
}

func (s *fakeRuntime) Status(_ context.Context, spec *cri.ImageSpec) (*cri.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if spec.Image == "broken:1" {
		return nil, errors.New("the runtime fails")
	}
	return s.images[spec.Image], nil
}

func (s *fakeRuntime) Pull(ctx context.Context, spec *cri.ImageSpec, auth *cri.AuthConfig, _ *cri.PodSandboxConfig) (string, error) {
	s.mu.Lock()
	s.pulls++
	s.activePulls++
	s.maxPulls = max(s.maxPulls, s.activePulls)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.activePulls--; s.mu.Unlock() }()
	select {
	case <-time.After(s.pullTime):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	name := strings.TrimSuffix(spec.Image, ":latest")
	name, _, _ = strings.Cut(name, ":")
	switch name {
	case "none":
		return "", errors.New("rpc error: code = NotFound desc = failed to pull and unpack image: not found")
	case "away":
		return "", errors.New("RegistryUnavailable: connection refused")
	case "forged":
		return "", errors.New("SignatureValidationFailed: no key")
	case "closed", "private":
		if auth.GetUsername() != "bob" || auth.GetPassword() != "right" {
			return "", errors.New("rpc error: code = Unknown desc = 401 Unauthorized")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[spec.Image] = &cri.Image{Id: "id-" + name, Size: 42}
	if name == "longuser" {
		s.images[spec.Image].Username = strings.Repeat("u", 20<<20)
	}
	return "id-" + name, nil
}

func (s *fakeRuntime) List(context.Context) (out []*cri.Image, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, i := range s.images {
		out = append(out, &cri.Image{Id: i.Id, Size: i.Size, RepoTags: []string{name}, Pinned: i.Pinned})
	}
	slices.SortFunc(out, func(a, b *cri.Image) int { return strings.Compare(a.Id, b.Id) })
	return out, nil
}

func (s *fakeRuntime) Remove(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, i := range s.images {
		if i.Id == id {
			delete(s.images, name)
			s.free += i.Size
		}
	}
	return nil
}

// pullsInProgress returns the number of running pulls.
func (s *fakeRuntime) pullsInProgress() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.activePulls
}

func (s *fakeRuntime) InUse(context.Context) ([]string, error) { return s.used, nil }
func (s *fakeRuntime) DiskSpace(context.Context) (size, free uint64, err error) {
	return s.size, s.free, nil
}

func (s *fakeRuntime) Secret(_ context.Context, p *corev1.Pod, name string) (*corev1.Secret, error) {
	password := map[string]string{"bob": "right", "twin": "right", "wrong": "wrong"}[name]
	if password == "" {
		return nil, apierrors.NewNotFound(gr.Secrets, name)
	}
	text := fmt.Sprintf(`{"auths": {"docker.io": {"username": "bob", "password": %q}}}`, password)
	o := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(text)}}
	o.Namespace, o.Name, o.UID = p.Namespace, name, "uid-"+p.UID
	return o, nil
}

func (s *fakeRuntime) Event(about event.Subject, eventType, reason, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%s %s %s: %s", eventType, about.Container, reason, fmt.Sprintf(format, args...)))
}

func newImages(t testing.TB, s *fakeRuntime) *Images {
	t.Helper()
	m, err := New(Config{Service: s, Secrets: s, Events: s, Dir: t.TempDir(), Log: discardLog})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newPod() *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "bob"}}}}
	p.Namespace, p.Name, p.UID = "shop", "web", "u-1"
	return p
}

func TestEnsure(t *testing.T) {
	nodetest.Cases(t, "testdata/ensure.txt", func(t *testing.T, input string) (out string) {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeRuntime()
			m, p := newImages(t, s), newPod()
			m.records.pulled("private:1", "id-private",
				&login{Username: "bob", Password: "right", from: owner{Secret: true, UID: "uid-u-1", Namespace: "shop", Name: "bob"}},
				discardLog)
			m.records.pulled("free:1", "id-free", nil, discardLog)
			for line := range strings.Lines(strings.TrimSpace(input)) {
				w := strings.Fields(line)
				out += "> " + strings.TrimSpace(line) + "\n"
				switch w[0] {
				case "wait":
					d, _ := time.ParseDuration(w[1])
					time.Sleep(d)
				case "secrets":
					p.Spec.ImagePullSecrets = nil
					if w[1] != "none" {
						p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: w[1]}}
					}
				case "verify":
					m.Verify = Verify(w[1])
				default:
					image, err := m.Ensure(t.Context(), p,
						&corev1.Container{Name: "c", Image: w[1], ImagePullPolicy: corev1.PullPolicy(strings.Trim(w[0], `"`))}, nil)
					for _, recorded := range s.events {
						out += "  " + recorded + "\n"
					}
					s.events = nil
					if err != nil {
						out += fmt.Sprintf("  error %v\n", err)
					} else {
						out += "  " + image.Id + "\n"
					}
				}
			}
		})
		return out
	})
}

// TestConcurrentPulls has many Pods with the same image, and then more images than may be pulled at a time.
func TestConcurrentPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeRuntime()
		s.pullTime = time.Second
		m := newImages(t, s)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := m.Ensure(t.Context(), newPod(), &corev1.Container{Image: "there:1"}, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s.pulls != 1 {
			t.Errorf("the image was pulled %d times", s.pulls)
		}
		m.puller = newPuller(Config{Service: s, Parallel: 3})
		for i := range 9 {
			wg.Go(func() {
				if _, err := m.Ensure(t.Context(), newPod(), &corev1.Container{Image: fmt.Sprintf("there%d:1", i)}, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s.maxPulls != 3 {
			t.Errorf("%d pulls ran at a time, want 3", s.maxPulls)
		}
	})
}

// TestPullsAreRecorded traces an image that is pulled after another one, and then one that is present.
func TestPullsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeRuntime()
		s.pullTime = time.Second
		m := newImages(t, s)
		records := hop.NewRecorder(10)
		trace := podtrace.New("n", records.Update)
		ensure := func(image string) {
			p := newPod()
			p.ResourceVersion = "7"
			work := trace.Begin(p, hop.Pull)
			work.Enter("image of c", image)
			if _, err := m.Ensure(t.Context(), p, &corev1.Container{Name: "c", Image: image}, work); err != nil {
				t.Error(err)
			}
			work.Done()
		}
		var wg sync.WaitGroup
		wg.Go(func() { ensure("other:1") })
		time.Sleep(time.Millisecond)
		wg.Go(func() { ensure("there:1") })
		wg.Wait()
		ensure("there:1")
		var got []string
		for _, r := range records.Of("u-1") {
			got = append(got, fmt.Sprintf("%v %v %s", r.Took[hop.Node], r.Wait[hop.Node], r.Steps[0].Detail))
		}
		if text := strings.Join(got, "; "); text !=
			"1s 0s 42 bytes: other:1; 1.999s 999ms 42 bytes: there:1; 0s 0s already present, 42 bytes: there:1" {
			t.Error(text)
		}
	})
}

// TestPullIsCancelledWithItsLastPod cancels one of two Pods while their image is pulled, and then the other.
func TestPullIsCancelledWithItsLastPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeRuntime()
		s.pullTime = time.Minute
		m := newImages(t, s)
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		long, end := context.WithTimeout(t.Context(), 2*time.Second)
		defer end()
		var wg sync.WaitGroup
		for _, ctx := range []context.Context{short, long} {
			wg.Go(func() {
				if _, err := m.Ensure(ctx, newPod(), &corev1.Container{Image: "there:1"}, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		if s.pullsInProgress() != 1 {
			t.Error("the pull ended although a Pod waits for it")
		}
		wg.Wait()
		synctest.Wait()
		if s.pullsInProgress() != 0 {
			t.Error("the pull continues although no Pod waits for it")
		}
		if files, _ := os.ReadDir(m.records.pulling); len(files) != 0 {
			t.Errorf("%v is left", files)
		}
	})
}

// TestAgentKilledDuringPull has an agent killed during a pull: the image counts as pulled, and Pods need a login to use it.
func TestAgentKilledDuringPull(t *testing.T) {
	s := newFakeRuntime()
	m := newImages(t, s)
	if err := m.records.intend("docker.io/library/secret:1"); err != nil {
		t.Fatal(err)
	}
	s.images["docker.io/library/secret:1"] = &cri.Image{Id: "id-secret"}
	next, err := New(m.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, pulled, err := next.records.of("docker.io/library/secret:1", "id-secret"); err != nil || !pulled {
		t.Errorf("an image that was being pulled counts as preloaded: %v", err)
	}
	list, _ := s.List(t.Context())
	next.records.recover(list, discardLog)
	if files, _ := os.ReadDir(next.records.pulling); len(files) != 0 {
		t.Errorf("%v is left", files)
	}
	ok, err := next.mayUse("docker.io/library/secret:1", "id-secret", func() (podLogins, error) { return podLogins{}, nil })
	if ok || err != nil {
		t.Errorf("a Pod without a login may use it: %v", err)
	}
	next.records.prune(nil, time.Now().Add(time.Hour))
	if files, _ := os.ReadDir(next.records.done); len(files) != 0 {
		t.Errorf("%v is left", files)
	}
}

func TestVerify(t *testing.T) {
	for _, bad := range []string{" a", "a*", "/*", "a:1", "*/*"} {
		if err := NeverVerifyAllowlistedImages.check([]string{bad}); err == nil {
			t.Errorf("%q is allowed", bad)
		}
	}
	allowed := []string{"quay.io/org/*", "busybox"}
	if err := NeverVerifyAllowlistedImages.check(allowed); err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]bool{"quay.io/org/app:1": false, "quay.io/organ/app": true, "busybox:1": false, "busybox2": true} {
		if got := NeverVerifyAllowlistedImages.needed(image, allowed, true); got != want {
			t.Errorf("%s: %v", image, got)
		}
	}
	if Verify("x").check(nil) == nil {
		t.Error("an unknown policy is accepted")
	}
}

func TestCollectGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeRuntime{size: 1000, free: 500, images: map[string]*cri.Image{
			"used": {Id: "used", Size: 100}, "pinned": {Id: "pinned", Size: 100, Pinned: true}, "a": {Id: "a", Size: 50},
			"b": {Id: "b", Size: 60}, "mounted": {Id: "mounted", Size: 1},
		}}
		s.used = []string{"used", "", "mounted", "b"}
		var events []string
		c, err := NewCollector(s, newImages(t, s), GCSettings{High: 85, Low: 80, Min: 2 * time.Minute, Max: time.Hour},
			func(_, reason, message string) { events = append(events, reason+": "+message) }, discardLog)
		if err != nil {
			t.Fatal(err)
		}
		remaining := func() string {
			list, _ := s.List(t.Context())
			var out []string
			for _, i := range list {
				out = append(out, i.Id)
			}
			return strings.Join(out, " ")
		}
		step := func(want string) {
			t.Helper()
			err := c.Collect(t.Context())
			if got := remaining(); got != want {
				t.Errorf("remaining: %s, want %s; %v %v", got, want, err, events)
			}
		}
		step("a b mounted pinned used")
		s.free = 100 // 90 percent full
		step("a b mounted pinned used")
		if len(events) != 1 || !strings.HasPrefix(events[0], "FreeDiskSpaceFailed: Insufficient free disk space on the node's image filesystem (90% of 1000 B used)") {
			t.Errorf("events: %v", events)
		}
		time.Sleep(3 * time.Minute)
		s.used = s.used[:3] // b is not used any more, a never was
		s.free = 160
		step("a b mounted pinned used") // 84 percent
		s.free = 150
		step("b mounted pinned used")
		s.free = 500
		time.Sleep(2 * time.Hour)
		step("mounted pinned used") // b was unused for longer than the maximum age
		if err := c.DeleteUnused(t.Context()); err != nil || remaining() != "mounted pinned used" {
			t.Errorf("remaining: %s: %v", remaining(), err)
		}
	})
	if _, err := NewCollector(nil, nil, GCSettings{High: 80, Low: 85}, nil, discardLog); err == nil {
		t.Error("a low threshold above the high one is accepted")
	}
}

// TestImagesStayWhileEnoughIsFree checks that images of a large disk are not deleted because of a percentage alone.
func TestImagesStayWhileEnoughIsFree(t *testing.T) {
	const gb = 1_000_000_000
	byDefault := NewGCSettings(DefaultHigh, DefaultLow)
	for _, c := range []struct {
		size, free uint64
		k          GCSettings
		want       int64
	}{
		{252 * gb, 24 * gb, byDefault, 0},
		{252 * gb, 14 * gb, byDefault, 20<<30 - 14*gb},
		{1000 * gb, 38 * gb, byDefault, 0},
		{20 * gb, 2 * gb, byDefault, 2 * gb},
		{252 * gb, 24 * gb, NewGCSettings(85, 79), 252*gb/100*21 - 24*gb}, // the user wants it so
		{252 * gb, 3 * gb, NewGCSettings(100, 99), 0},
	} {
		if _, wanted := pressure(c.size, c.free, c.k); wanted != c.want {
			t.Errorf("%d of %d free: %d bytes are to be freed, want %d", c.free, c.size, wanted, c.want)
		}
	}
}

// fakeAccounts issues tokens for service accounts, and returns the accounts.
type fakeAccounts struct{ annotations map[string]string }

func (a fakeAccounts) Token(_ context.Context, _, name string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, time.Time,
	error) {
	r.Status.Token = "token-of-" + name + "-for-" + r.Spec.Audiences[0]
	return r, time.Time{}, nil
}

func (a fakeAccounts) Get(_ context.Context, _ schema.GroupResource, namespace, name, _ string) (kind.Object, error) {
	o := &corev1.ServiceAccount{}
	o.Namespace, o.Name, o.UID, o.Annotations = namespace, name, "sa-1", a.annotations
	return o, nil
}

func TestCredentialProviderPlugins(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("there is no shell to run plugins")
	}
	dir := t.TempDir()
	plugin := `#!/bin/sh
echo run >> "$COUNT"
read -r question
case "$question" in
*token-of-robot-for-reg*) user=robot ;;
*) user=node ;;
esac
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry","cacheDuration":"1h","auth":{"reg.example":{"username":"'$user'","password":"p"}}}'
`
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := program.Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	count := filepath.Join(dir, "count")
	write("known", plugin)
	write("broken", "#!/bin/sh\necho no; echo why >&2; exit 3\n")
	config := `
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: known
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["reg.example", "*.example:5000"]
  defaultCacheDuration: 0s
  env: [{name: COUNT, value: ` + count + `}]
- name: broken
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["reg.example"]
  defaultCacheDuration: 1m
`
	load := func(text string, a fakeAccounts) *Plugins {
		t.Helper()
		ps, err := LoadPlugins(PluginConfig{File: write("config.yaml", text), Bin: dir, Accounts: a, Cluster: a, Log: discardLog})
		if err != nil {
			t.Fatal(err)
		}
		return ps
	}
	runs := func() int { text, _ := os.ReadFile(count); return strings.Count(string(text), "run") }
	ps := load(config, fakeAccounts{})
	for range 2 {
		got := ps.find(t.Context(), newPod(), "reg.example/app")
		if len(got) != 1 || got[0].Username != "node" || got[0].from != (owner{}) {
			t.Errorf("got %+v", got)
		}
	}
	ps.find(t.Context(), newPod(), "reg.example/other")
	ps.find(t.Context(), newPod(), "else.example/other")
	if runs() != 1 {
		t.Errorf("the program ran %d times", runs())
	}
	withToken := strings.Replace(config, "  env:", "  tokenAttributes: {serviceAccountTokenAudience: reg, cacheType: ServiceAccount, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [role]}\n  env:", 1)
	p := newPod()
	if got := load(withToken, fakeAccounts{}).find(t.Context(), p, "reg.example/app"); len(got) != 0 {
		t.Errorf("a Pod without a service account gets %+v", got)
	}
	p.Spec.ServiceAccountName = "robot"
	if got := load(withToken, fakeAccounts{}).find(t.Context(), p, "reg.example/app"); len(got) != 0 {
		t.Errorf("an account without the required annotation gets %+v", got)
	}
	got := load(withToken, fakeAccounts{annotations: map[string]string{"role": "r"}}).find(t.Context(), p, "reg.example/app")
	if len(got) != 1 || got[0].Username != "robot" || !got[0].from.Account || got[0].from.UID != "sa-1" {
		t.Errorf("got %+v", got)
	}
	for _, bad := range []string{
		"kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders: []", "kind: Pod\napiVersion: v1", "{",
		strings.Replace(config, "name: broken", "name: ../broken", 1), strings.Replace(config, "name: broken", "name: known", 1),
		strings.Replace(config, "name: broken", "name: absent", 1), strings.Replace(config, `["reg.example"]`, "[]", 1),
		strings.Replace(config, "k8s.io/v1\n  match", "k8s.io/v7\n  match", 1),
	} {
		if _, err := LoadPlugins(PluginConfig{File: write("bad.yaml", bad), Bin: dir, Log: discardLog}); err == nil {
			t.Errorf("this is accepted:\n%s", bad)
		}
	}
}
