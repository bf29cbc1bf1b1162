package podsource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/core/podkind"
	"proa.dev/kinds/kind"
)

// The annotations of static Pods.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	hashAnnotation   = "kubernetes.io/config.hash"
	seenAnnotation   = "kubernetes.io/config.seen"
)

// maxManifest limits the size of a manifest.
const maxManifest = 10 << 20

// origin is where a manifest comes from.
type origin struct {
	node, source, at string
	def              *kind.Def
	now              time.Time
}

func (s *Source) origin(source, at string) origin {
	return origin{node: s.Node, source: source, at: at, def: podkind.Pods(), now: time.Now()}
}

// decode parses manifests in YAML or JSON: one Pod, or from a URL a list of Pods.
func decode(text []byte, from origin) ([]*corev1.Pod, error) {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(text, &meta); err != nil {
		return nil, fmt.Errorf("couldn't parse as pod(%w), please check config file", err)
	}
	var list corev1.PodList
	var err error
	switch {
	case meta.APIVersion == "v1" && meta.Kind == "Pod":
		list.Items = make([]corev1.Pod, 1)
		err = yaml.Unmarshal(text, &list.Items[0])
	case meta.APIVersion == "v1" && meta.Kind == "PodList" && from.source == FromURL:
		err = yaml.Unmarshal(text, &list)
	default:
		err = fmt.Errorf("it is a %q of %q", meta.Kind, meta.APIVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't parse as pod(%w), please check config file", err)
	}
	var out []*corev1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		if err := complete(p, from); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// complete defaults and validates a Pod of a manifest, as the API would, and gives it its name on this node.
func complete(p *corev1.Pod, from origin) error {
	if p.Name == "" {
		return errors.New("invalid pod: name is needed for the pod")
	}
	from.def.Default(p)
	if p.UID == "" {
		uid, err := uidOf(p, from)
		if err != nil {
			return err
		}
		p.UID = uid
	}
	p.Name += "-" + strings.ToLower(from.node)
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Spec.NodeName = from.node
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[hashAnnotation] = string(p.UID)
	if from.source == FromFile {
		tolerate(&p.Spec)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	p.CreationTimestamp = metav1.Time{} // only Pods of the API have one, see fact.Static
	if errs := from.def.Validate(p, nil); len(errs) > 0 {
		return fmt.Errorf("invalid pod: %w", errs.ToAggregate())
	}
	if what := apiReference(&p.Spec); what != "" {
		return fmt.Errorf("static pods may not reference %s", what)
	}
	p.Annotations[sourceAnnotation] = from.source
	p.Annotations[seenAnnotation] = from.now.Format(time.RFC3339Nano)
	return nil
}

// uidOf returns the UID of a Pod that has none: the same for the same content at the same place, so that a Pod
// continues when the agent restarts, and is another one when its manifest changes.
func uidOf(p *corev1.Pod, from origin) (types.UID, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("invalid pod: %w", err)
	}
	h := sha256.New()
	h.Write(text)
	fmt.Fprintf(h, "|%s|%s|%s", from.node, from.source, from.at)
	return types.UID(hex.EncodeToString(h.Sum(nil)[:16])), nil
}

// tolerate lets a Pod stay on the node whatever NoExecute taints it has.
func tolerate(s *corev1.PodSpec) {
	all := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	for i := range s.Tolerations {
		if t := &s.Tolerations[i]; t.Key == "" && t.Operator == all.Operator && t.Effect == all.Effect && t.Value == "" {
			*t = all
			return
		}
	}
	s.Tolerations = append(s.Tolerations, all)
}

// apiReference returns which API objects a Pod refers to, if any. A static Pod must run without the API.
func apiReference(s *corev1.PodSpec) string {
	if s.ServiceAccountName != "" {
		return "serviceaccounts"
	}
	if len(s.ImagePullSecrets) > 0 {
		return "secrets"
	}
	if len(s.ResourceClaims) > 0 {
		return "resourceclaims"
	}
	for _, c := range containers(s) {
		for _, e := range c.EnvFrom {
			if e.SecretRef != nil {
				return "secrets"
			}
			if e.ConfigMapRef != nil {
				return "configmaps"
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				return "secrets"
			}
			if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
				return "configmaps"
			}
		}
	}
	for i := range s.Volumes {
		if what := volumeReference(&s.Volumes[i]); what != "" {
			return what
		}
	}
	return ""
}

func containers(s *corev1.PodSpec) (out []corev1.Container) {
	out = append(append(out, s.InitContainers...), s.Containers...)
	for _, c := range s.EphemeralContainers {
		out = append(out, corev1.Container(c.EphemeralContainerCommon))
	}
	return out
}

// volumeReference returns which API objects a volume refers to.
func volumeReference(v *corev1.Volume) string {
	switch {
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)"
	case v.Secret != nil:
		return "secrets (via secret volumes)"
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)"
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)"
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims"
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)"
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)"
	case v.Projected == nil:
		return ""
	}
	for _, s := range v.Projected.Sources {
		switch {
		case s.ConfigMap != nil:
			return "configmaps (via projected volumes)"
		case s.Secret != nil:
			return "secrets (via projected volumes)"
		case s.ServiceAccountToken != nil:
			return "serviceaccounts (via projected volumes)"
		case s.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case s.PodCertificate != nil:
			return "podcertificates"
		}
	}
	return ""
}
