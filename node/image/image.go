// Package image brings images to a node and takes them away again. It pulls as the policy of a container says, with the logins
// of its Pod, once for all who want the same image, and waits longer after each failure. An image that somebody's login
// brought is only for those who have a login too; who that is, is remembered on disk. Images that nobody uses go when the
// disk fills up.
package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
)

// Secrets reads the Secrets that Pods name.
type Secrets interface {
	Secret(ctx context.Context, p *corev1.Pod, name string) (*corev1.Secret, error)
}

// Config is what pulling needs.
type Config struct {
	Service Service
	Secrets Secrets
	Events  event.Recorder
	// Dir keeps who may use which image.
	Dir string
	// Parallel is how many images are pulled at a time; 0 is one.
	Parallel int
	Verify   Verify
	// Allowed are images that need no verification, if Verify says so: names without tag, or prefixes that end in "/*".
	Allowed []string
	// Logins is a file of logins, as clients keep it, that all Pods may use; "" for none.
	Logins string
	// Plugins are programs that know logins; nil for none.
	Plugins *Plugins
	Log     *slog.Logger
}

// Images brings images to the node. It satisfies pod.Images.
type Images struct {
	Config
	puller  *puller
	backoff *backoff
	records *records
}

// New makes an Images.
func New(c Config) (*Images, error) {
	if err := c.Verify.check(c.Allowed); err != nil {
		return nil, err
	}
	r, err := newRecords(c.Dir)
	if err != nil {
		return nil, err
	}
	return &Images{Config: c, puller: newPuller(c.Service, c.Parallel), backoff: newBackoff(), records: r}, nil
}

// Ensure makes the image of a container present, as its pull policy says.
func (m *Images) Ensure(ctx context.Context, p *corev1.Pod, c *corev1.Container) (*cri.Image, error) {
	return m.ensure(ctx, want{pod: p, container: c.Name, image: c.Image, policy: c.ImagePullPolicy})
}

// want is an image that a Pod wants.
type want struct {
	pod       *corev1.Pod
	container string
	image     string
	policy    corev1.PullPolicy
}

func (m *Images) event(w want, eventType, reason, format string, args ...any) {
	if m.Events != nil {
		m.Events.Event(w.pod, w.container, eventType, reason, format, args...)
	}
}

func (m *Images) ensure(ctx context.Context, w want) (*cri.Image, error) {
	name, err := ParseName(w.image)
	if err != nil {
		msg := fmt.Sprintf("Failed to apply default image tag %q: %v", w.image, err)
		m.event(w, corev1.EventTypeWarning, "InspectFailed", "%s", msg)
		return nil, &fact.Waiting{Reason: "InvalidImageName", Message: msg}
	}
	if w.policy == "" {
		w.policy = policyOf(name)
	}
	spec := &cri.ImageSpec{Image: tagged(w.image, name), Annotations: w.pod.Annotations}
	logins := sync.OnceValues(func() (found, error) { return m.logins(ctx, w.pod, name.Repository) })
	if w.policy != corev1.PullAlways {
		here, err := m.Service.Status(ctx, spec)
		if err != nil {
			msg := fmt.Sprintf("Failed to inspect image %q: %v", w.image, err)
			m.event(w, corev1.EventTypeWarning, "InspectFailed", "%s", msg)
			return nil, &fact.Waiting{Reason: "ImageInspectError", Message: msg}
		}
		if here != nil {
			ok, err := m.mayUse(w.image, here.Id, logins)
			if err != nil {
				return nil, &fact.Waiting{Reason: "ErrImagePull", Message: err.Error()}
			}
			if ok {
				m.event(w, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine and can be accessed by the pod", w.image)
				return here, nil
			}
		}
		if w.policy == corev1.PullNever {
			// Who may not use an image is not told that it is here.
			msg := fmt.Sprintf("Container image %q is not present with pull policy of Never", w.image)
			m.event(w, corev1.EventTypeWarning, "ErrImageNeverPull", "%s", msg)
			return nil, &fact.Waiting{Reason: "ErrImageNeverPull", Message: msg}
		}
	}
	ls, err := logins()
	if err != nil {
		return nil, &fact.Waiting{Reason: "ErrImagePull", Message: err.Error()}
	}
	return m.pull(ctx, w, spec, ls)
}

// policyOf is how often an image is pulled when nobody says: always for the moving tag, once for all others.
func policyOf(n Name) corev1.PullPolicy {
	if n.Tag == "latest" && n.Digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// pull pulls an image, unless that failed a short while ago.
func (m *Images) pull(ctx context.Context, w want, spec *cri.ImageSpec, ls found) (*cri.Image, error) {
	key := string(w.pod.UID) + "_" + w.image
	if left, why := m.backoff.left(key, time.Now()); left > 0 {
		m.event(w, corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q", w.image)
		return nil, &fact.Waiting{Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q: %s", w.image, why), After: left}
	}
	if err := m.records.intend(w.image); err != nil {
		return nil, &fact.Waiting{Reason: "ErrImagePull", Message: fmt.Sprintf("Failed to record image pull intent for container image %q: %v", w.image, err)}
	}
	m.event(w, corev1.EventTypeNormal, "Pulling", "Pulling image %q", w.image)
	began := time.Now()
	f, err := m.puller.pull(ctx, request{spec: spec, logins: ls.logins, sandbox: sandbox(w.pod)})
	if err != nil {
		m.records.failed(w.image)
		if ctx.Err() != nil {
			return nil, ctx.Err() // nobody wants it any more
		}
		return nil, m.failed(w, key, ls, err)
	}
	m.records.pulled(w.image, f.image.Id, f.used, m.Log)
	m.backoff.succeeded(time.Now())
	m.event(w, corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		w.image, f.took.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), f.image.Size)
	return f.image, nil
}

// failed says that a pull failed.
func (m *Images) failed(w want, key string, ls found, err error) error {
	m.event(w, corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %v", w.image, err)
	why := reasonOf(w.image, err)
	m.backoff.failed(key, why.Reason+": "+why.Message, time.Now())
	if len(ls.missing) > 0 && why.Reason == "ErrImagePull" {
		all := want{pod: w.pod}
		m.event(all, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(ls.missing, ", "))
	}
	return why
}

// reasonOf tells the failures apart that runtimes name.
func reasonOf(image string, err error) *fact.Waiting {
	for _, known := range []struct{ reason, because string }{
		{"RegistryUnavailable", "the registry is unavailable"}, {"SignatureValidationFailed", "the signature validation failed"},
	} {
		for _, text := range []string{err.Error(), cri.Message(err)} {
			if rest, ok := strings.CutPrefix(text, known.reason); ok {
				return &fact.Waiting{Reason: known.reason, Message: fmt.Sprintf("image pull failed for %s because %s%s", image, known.because, rest)}
			}
		}
	}
	return &fact.Waiting{Reason: "ErrImagePull", Message: err.Error()}
}

// sandbox tells the runtime whom it pulls for.
func sandbox(p *corev1.Pod) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
		Annotations: p.Annotations,
	}
}

// found are the logins for an image, and the Secrets that a Pod names and that are not there.
type found struct {
	logins  []login
	missing []string
}

// logins finds those that a Pod can use for a repository: its own first, then the node's, then those that plugins know.
func (m *Images) logins(ctx context.Context, p *corev1.Pod, repository string) (out found, err error) {
	own := &keyring{}
	for _, ref := range p.Spec.ImagePullSecrets {
		if ref.Name == "" || m.Secrets == nil {
			continue
		}
		s, err := m.Secrets.Secret(ctx, p, ref.Name)
		if err != nil {
			if errors.Is(err, context.Canceled) {
				return found{}, err
			}
			out.missing = append(out.missing, ref.Name)
			continue
		}
		if err := own.addSecret(s); err != nil {
			return found{}, err
		}
	}
	out.logins = own.find(repository)
	node, err := m.ofNode(repository)
	if err != nil {
		m.Log.WarnContext(ctx, "cannot read the node's logins", "file", m.Logins, "err", err)
	}
	out.logins = append(out.logins, node...)
	if m.Plugins != nil {
		out.logins = append(out.logins, m.Plugins.find(ctx, p, repository)...)
	}
	return out, nil
}
