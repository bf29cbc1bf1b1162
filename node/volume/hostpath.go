package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/volume/hostpath"
)

// hostPath provides a path of the host, after checking its type.
func hostPath(s *corev1.HostPathVolumeSource) (*mounted, error) {
	if err := hostpath.CheckNoBacksteps(s.Path); err != nil {
		return nil, fmt.Errorf("invalid HostPath `%s`: %w", s.Path, err)
	}
	kind := corev1.HostPathUnset
	if s.Type != nil {
		kind = *s.Type
	}
	if err := hostpath.Check(s.Path, kind); err != nil {
		return nil, err
	}
	return &mounted{path: s.Path}, nil
}
