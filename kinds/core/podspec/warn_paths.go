package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// pathFrom is the path of a file in a volume and its source.
type pathFrom struct{ path, source string }

func (p pathFrom) String() string {
	if p.source == "" {
		return fmt.Sprintf("%q", p.path)
	}
	return fmt.Sprintf("%q (%s)", p.path, p.source)
}

// overlapWarnings warns about files in a volume of which one hides another.
func overlapWarnings(volumes []corev1.Volume) []string {
	var texts []string
	for i := range volumes {
		v := &volumes[i]
		if m := v.ConfigMap; m != nil {
			texts = append(texts, overlappingPaths(v.Name, fmt.Sprintf("ConfigMap %q", m.Name), itemPaths(m.Items, ""))...)
		}
		if s := v.Secret; s != nil {
			texts = append(texts, overlappingPaths(v.Name, fmt.Sprintf("Secret %q", s.SecretName), itemPaths(s.Items, ""))...)
		}
		if d := v.DownwardAPI; d != nil {
			texts = append(texts, overlappingPaths(v.Name, "DownwardAPI", filePaths(d.Items, ""))...)
		}
		if v.Projected == nil {
			continue
		}
		var paths []pathFrom
		for j := range v.Projected.Sources {
			s := &v.Projected.Sources[j]
			if *s == (corev1.VolumeProjection{}) {
				texts = append(texts, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
				continue
			}
			paths = append(paths, projectedPaths(s)...)
		}
		texts = append(texts, overlappingPaths(v.Name, "Projected", paths)...)
	}
	return texts
}

func projectedPaths(s *corev1.VolumeProjection) []pathFrom {
	switch {
	case s.ConfigMap != nil && s.ConfigMap.Items != nil:
		return itemPaths(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))
	case s.Secret != nil && s.Secret.Items != nil:
		return itemPaths(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))
	case s.DownwardAPI != nil && s.DownwardAPI.Items != nil:
		return filePaths(s.DownwardAPI.Items, "DownwardAPI")
	case s.ServiceAccountToken != nil:
		return []pathFrom{{s.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case s.ClusterTrustBundle != nil:
		name := s.ClusterTrustBundle.Name
		if name == nil {
			name = s.ClusterTrustBundle.SignerName
		}
		return []pathFrom{{s.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", ptr.Deref(name, ""))}}
	case s.PodCertificate != nil:
		c := s.PodCertificate
		return []pathFrom{{c.CertificateChainPath, "PodCertificate chain"}, {c.KeyPath, "PodCertificate key"},
			{c.CredentialBundlePath, "PodCertificate credential bundle"}}
	}
	return nil
}

func itemPaths(items []corev1.KeyToPath, source string) []pathFrom {
	paths := make([]pathFrom, len(items))
	for i, item := range items {
		paths[i] = pathFrom{item.Path, source}
	}
	return paths
}

func filePaths(files []corev1.DownwardAPIVolumeFile, source string) []pathFrom {
	paths := make([]pathFrom, len(files))
	for i, f := range files {
		paths[i] = pathFrom{f.Path, source}
	}
	return paths
}

func overlappingPaths(volume, what string, paths []pathFrom) []string {
	var texts []string
	for i := range paths {
		p := &paths[i]
		p.path = strings.TrimRight(p.path, "/")
		for _, other := range paths[:i] {
			if p.path != "" && other.path != "" &&
				(strings.HasPrefix(other.path+"/", p.path+"/") || strings.HasPrefix(p.path+"/", other.path+"/")) {
				texts = append(texts, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", volume, what, p, other))
			}
		}
	}
	return texts
}
