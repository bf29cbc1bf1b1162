// Package image pulls the images of containers and deletes unused ones. It pulls as the pull policy of a container
// says, with the credentials of its Pod, only once for all Pods that want the same image, and with back-off after
// failures. An image that was pulled with credentials is only for Pods that have such credentials too; records on disk
// say whose. Unused images are deleted when the disk fills up.
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

	"proa.dev/node/agentmetrics"
	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/podtrace"
)

// Secrets reads the Secrets that Pods refer to.
type Secrets interface {
	Secret(ctx context.Context, p *corev1.Pod, name string) (*corev1.Secret, error)
}

// Config is what Images needs.
type Config struct {
	Service Service
	// Progress tells how far pulls are; nil for a runtime that does not.
	Progress Progress
	Secrets  Secrets
	Events   event.Recorder
	// Dir is the folder of the records who may use which image.
	Dir string
	// Parallel is how many images are pulled at a time; 0 is one.
	Parallel int
	Verify   Verify
	// Allowed are images that need no verification under NeverVerifyAllowlistedImages: names without tag, or prefixes
	// that end in "/*".
	Allowed []string
	// Logins is a file of registry credentials in the format of Docker's config.json, which all Pods may use; empty for
	// none.
	Logins string
	// Plugins are the credential provider plugins; it may be nil.
	Plugins *Plugins
	// Metrics records the times of pulls; it may be nil.
	Metrics *agentmetrics.Metrics
	Log     *slog.Logger
}

// Images pulls images. It implements pod.Images.
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
	return &Images{Config: c, puller: newPuller(c), backoff: newBackoff(), records: r}, nil
}

// Ensure makes the image of a container present, as its pull policy says. The step of traced that is under way says
// how much of it has been pulled, and in the end how large it is; traced may be nil.
func (m *Images) Ensure(ctx context.Context, p *corev1.Pod, c *corev1.Container, traced *podtrace.Work) (*cri.Image, error) {
	return m.ensure(ctx, imageRequest{pod: p, container: c.Name, image: c.Image, policy: c.ImagePullPolicy, traced: traced})
}

// imageRequest is an image that a container of a Pod needs.
type imageRequest struct {
	pod       *corev1.Pod
	container string
	image     string
	policy    corev1.PullPolicy
	traced    *podtrace.Work // nil if nobody records the pull
}

func (m *Images) event(w imageRequest, eventType, reason, format string, args ...any) {
	if m.Events != nil {
		m.Events.Event(event.Container(w.pod, w.container), eventType, reason, format, args...)
	}
}

func (m *Images) ensure(ctx context.Context, w imageRequest) (*cri.Image, error) {
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
	logins := sync.OnceValues(func() (podLogins, error) { return m.logins(ctx, w.pod, name.Repository) })
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
				w.traced.Detail("already present, %d bytes: %s", here.Size, w.image)
				return here, nil
			}
		}
		if w.policy == corev1.PullNever {
			// A Pod that may not use an image is not told that it is present.
			msg := fmt.Sprintf("Container image %q is not present with pull policy of Never", w.image)
			m.event(w, corev1.EventTypeWarning, "ErrImageNeverPull", "%s", msg)
			return nil, &fact.Waiting{Reason: "ErrImageNeverPull", Message: msg}
		}
	}
	ls, err := logins()
	if err != nil {
		return nil, &fact.Waiting{Reason: "ErrImagePull", Message: err.Error()}
	}
	return m.pull(ctx, w, request{spec: spec, repository: name.Repository, logins: ls.logins, sandbox: sandbox(w.pod)}, ls)
}

// policyOf returns the default pull policy: Always for the tag latest, IfNotPresent for all others.
func policyOf(n Name) corev1.PullPolicy {
	if n.Tag == "latest" && n.Digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// pull pulls an image, unless it is in back-off.
func (m *Images) pull(ctx context.Context, w imageRequest, r request, ls podLogins) (*cri.Image, error) {
	key := string(w.pod.UID) + "_" + w.image
	if left, why := m.backoff.remaining(key, time.Now()); left > 0 {
		m.event(w, corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q", w.image)
		return nil, &fact.Waiting{Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q: %s", w.image, why),
			After: left}
	}
	if err := m.records.intend(w.image); err != nil {
		return nil, &fact.Waiting{Reason: "ErrImagePull",
			Message: fmt.Sprintf("Failed to record image pull intent for container image %q: %v", w.image, err)}
	}
	m.event(w, corev1.EventTypeNormal, "Pulling", "Pulling image %q", w.image)
	began := time.Now()
	m.Metrics.PullBegan(w.pod.UID, began)
	if w.traced != nil {
		r.watch = func(done, total int64) { w.traced.Progress(progressText(done, total, w.image)) }
	}
	f, err := m.puller.pull(ctx, r)
	if err != nil {
		m.records.failed(w.image)
		if ctx.Err() != nil {
			return nil, ctx.Err() // the Pod no longer needs it
		}
		return nil, m.failed(w, key, ls, err)
	}
	m.records.pulled(w.image, f.image.Id, f.used, m.Log)
	m.backoff.succeeded(time.Now())
	m.Metrics.Pulled(w.pod.UID, f.image.Size, time.Since(began), time.Now())
	w.traced.Waited(time.Since(began) - f.took) // for other pulls
	w.traced.Detail("%d bytes: %s", f.image.Size, w.image)
	m.event(w, corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		w.image, f.took.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), f.image.Size)
	return f.image, nil
}

// failed records that a pull failed.
func (m *Images) failed(w imageRequest, key string, ls podLogins, err error) error {
	m.event(w, corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %v", w.image, err)
	why := reasonOf(w.image, err)
	m.backoff.failed(key, why.Reason+": "+why.Message, time.Now())
	if len(ls.missing) > 0 && why.Reason == "ErrImagePull" {
		all := imageRequest{pod: w.pod}
		m.event(all, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(ls.missing, ", "))
	}
	return why
}

// reasonOf returns the waiting state for a failed pull; some failures have reasons that runtimes name.
func reasonOf(image string, err error) *fact.Waiting {
	for _, known := range []struct{ reason, because string }{
		{"RegistryUnavailable", "the registry is unavailable"}, {"SignatureValidationFailed", "the signature validation failed"},
	} {
		for _, text := range []string{err.Error(), cri.Message(err)} {
			if rest, ok := strings.CutPrefix(text, known.reason); ok {
				return &fact.Waiting{Reason: known.reason,
					Message: fmt.Sprintf("image pull failed for %s because %s%s", image, known.because, rest)}
			}
		}
	}
	return &fact.Waiting{Reason: "ErrImagePull", Message: err.Error()}
}

// sandbox tells the runtime for which Pod it pulls.
func sandbox(p *corev1.Pod) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
		Annotations: p.Annotations,
	}
}

// podLogins are the credentials for an image, and the image pull secrets of the Pod that do not exist.
type podLogins struct {
	logins  []login
	missing []string
}

// logins returns the credentials that a Pod can use for a repository: those of its Secrets first, then the node's, then
// those of plugins.
func (m *Images) logins(ctx context.Context, p *corev1.Pod, repository string) (out podLogins, err error) {
	own := &loginIndex{}
	for _, ref := range p.Spec.ImagePullSecrets {
		if ref.Name == "" || m.Secrets == nil {
			continue
		}
		s, err := m.Secrets.Secret(ctx, p, ref.Name)
		if err != nil {
			if errors.Is(err, context.Canceled) {
				return podLogins{}, err
			}
			out.missing = append(out.missing, ref.Name)
			continue
		}
		if err := own.addSecret(s); err != nil {
			return podLogins{}, err
		}
	}
	out.logins = own.find(repository)
	node, err := m.nodeLogins(repository)
	if err != nil {
		m.Log.WarnContext(ctx, "cannot read the node's registry credentials", "file", m.Logins, "err", err)
	}
	out.logins = append(out.logins, node...)
	if m.Plugins != nil {
		out.logins = append(out.logins, m.Plugins.find(ctx, p, repository)...)
	}
	return out, nil
}
