package volume

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"proa.dev/node/fact"
	"proa.dev/node/podcredential"
	"proa.dev/node/volume/files"
)

// projected puts the files of several sources into one volume.
func (v *Volumes) projected(name string, s *corev1.ProjectedVolumeSource) source {
	return func(ctx context.Context, p *corev1.Pod) (payload, error) {
		if s.DefaultMode == nil {
			return payload{}, errNoMode
		}
		out := payload{files: map[string]files.File{}}
		var errs []error
		var size int64
		for i := range s.Sources {
			if err := ctx.Err(); err != nil {
				return payload{}, err
			}
			one, err := v.projection(ctx, p, projection{name, i, &s.Sources[i], s.DefaultMode})
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if size += sizeOf(one.files); size > maxContents {
				return payload{}, fmt.Errorf("its sources have more than %d MiB: name fewer items", maxContents>>20)
			}
			maps.Copy(out.files, one.files)
			out.refreshAt = earlier(out.refreshAt, one.refreshAt)
		}
		return out, utilerrors.NewAggregate(errs)
	}
}

// projection is one source of a projected volume, with its position.
type projection struct {
	volume string
	index  int
	*corev1.VolumeProjection
	mode *int32
}

func (v *Volumes) projection(ctx context.Context, p *corev1.Pod, s projection) (out payload, err error) {
	switch {
	case s.Secret != nil:
		out.files, err = v.filesOfSecret(ctx, p, s.Secret.Name, keys{s.Secret.Items, s.mode, isTrue(s.Secret.Optional)})
	case s.ConfigMap != nil:
		out.files, err = v.filesOfConfigMap(ctx, p, s.ConfigMap.Name, keys{s.ConfigMap.Items, s.mode, isTrue(s.ConfigMap.Optional)})
	case s.DownwardAPI != nil:
		out.files, err = filesOfPod(p, s.DownwardAPI.Items, s.mode, v.Allocatable())
	case s.ServiceAccountToken != nil:
		return v.token(ctx, p, s)
	case s.ClusterTrustBundle != nil:
		var anchors []byte
		anchors, err = v.Refs.Anchors(ctx, p, s.ClusterTrustBundle)
		out.files = privateFiles(p, s.mode, map[string][]byte{s.ClusterTrustBundle.Path: anchors})
	case s.PodCertificate != nil:
		var key, chain []byte
		key, chain, out.refreshAt, err = v.certs.Get(ctx, p, podcredential.Key{Pod: p.UID, Volume: s.volume, Index: s.index},
			s.PodCertificate)
		out.files = privateFiles(p, s.mode, map[string][]byte{
			s.PodCertificate.CredentialBundlePath: slices.Concat(key, chain),
			s.PodCertificate.KeyPath:              key, s.PodCertificate.CertificateChainPath: chain,
		})
	}
	return out, err
}

func (v *Volumes) token(ctx context.Context, p *corev1.Pod, s projection) (payload, error) {
	t := s.ServiceAccountToken
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: t.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
	}}
	if t.Audience != "" {
		request.Spec.Audiences = []string{t.Audience}
	}
	got, again, err := v.Refs.Token(ctx, p.Namespace, p.Spec.ServiceAccountName, request)
	if err != nil {
		return payload{}, err
	}
	return payload{files: privateFiles(p, s.mode, map[string][]byte{t.Path: []byte(got.Status.Token)}),
		refreshAt: atLeastASecondAhead(again)}, nil
}

// atLeastASecondAhead keeps at least a second between two refreshes, whatever the clock says.
func atLeastASecondAhead(t time.Time) time.Time {
	if soon := time.Now().Add(time.Second); t.Before(soon) {
		return soon
	}
	return t
}

// privateFiles makes files that only the Pod's user or its fsGroup can read, if it has one.
func privateFiles(p *corev1.Pod, mode *int32, data map[string][]byte) map[string]files.File {
	user := onlyUser(p)
	m := fs.FileMode(*mode)
	if user != nil || fsGroup(p) != nil {
		m = 0o600 // the group gets its rights when the fsGroup is applied
	}
	out := map[string]files.File{}
	for path, d := range data {
		if path != "" {
			out[path] = files.File{Data: d, Mode: m, User: user}
		}
	}
	return out
}

// onlyUser returns the user that all containers of a Pod run as; nil if they name none or different ones.
func onlyUser(p *corev1.Pod) (one *int64) {
	for c := range fact.AllContainers(p) {
		user := runAs(p, c)
		if user == nil || one != nil && *one != *user {
			return nil
		}
		one = user
	}
	return one
}

func runAs(p *corev1.Pod, c *corev1.Container) *int64 {
	if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
		return c.SecurityContext.RunAsUser
	}
	if p.Spec.SecurityContext != nil {
		return p.Spec.SecurityContext.RunAsUser
	}
	return nil
}
