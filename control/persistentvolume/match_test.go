package persistentvolume

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestMatch runs the cases of testdata/match.txt. A claim or a volume is a line of words: its size, its access modes, and
// further fields.
func TestMatch(t *testing.T) {
	text, err := os.ReadFile("testdata/match.txt")
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var claim *corev1.PersistentVolumeClaim
	var volumes []*corev1.PersistentVolume
	delayed, checks := false, 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		switch words[0] {
		case "case":
			name, volumes = strings.Join(words[1:], " "), nil
		case "claim":
			claim, delayed = readClaim(t, words[1:])
		case "->":
			checks++
			v, err := bestVolume(claim, volumes, delayed)
			got := "none"
			if err != nil {
				got = "error"
			} else if v != nil {
				got = v.Name
			}
			if got != words[1] {
				t.Errorf("%s: got %s, want %s", name, got, words[1])
			}
		case "named":
			checks++
			got := "fits"
			if err := checkSatisfies(volumes[0], claim); err != nil {
				got = err.Error()
			}
			if want := strings.Join(words[2:], " "); got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		default:
			volumes = append(volumes, readVolume(t, words))
		}
	}
	if checks < 30 {
		t.Errorf("only %d checks", checks)
	}
}

var shortModes = map[string]corev1.PersistentVolumeAccessMode{
	"RWO": corev1.ReadWriteOnce, "ROX": corev1.ReadOnlyMany, "RWX": corev1.ReadWriteMany, "RWOP": corev1.ReadWriteOncePod,
}

func readModes(text string) (out []corev1.PersistentVolumeAccessMode) {
	for m := range strings.SplitSeq(text, ",") {
		out = append(out, shortModes[m])
	}
	return out
}

func readClaim(t *testing.T, words []string) (c *corev1.PersistentVolumeClaim, delayed bool) {
	c = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "u"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: readModes(words[1]),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(words[0])}},
		},
	}
	for _, w := range words[2:] {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "delayed":
			delayed = true
		case "class":
			c.Spec.StorageClassName = &value
		case "oldclass":
			c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: value}
		case "mode":
			c.Spec.VolumeMode = new(corev1.PersistentVolumeMode(value))
		case "attributes":
			c.Spec.VolumeAttributesClassName = &value
		case "select":
			k, v, _ := strings.Cut(value, ":")
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
		case "wrong":
			c.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "x"}}}
		default:
			t.Fatalf("claim: %s", w)
		}
	}
	return c, delayed
}

func readVolume(t *testing.T, words []string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: words[0]},
		Spec: corev1.PersistentVolumeSpec{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(words[1])},
			AccessModes: readModes(words[2])},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
	for _, w := range words[3:] {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "class":
			v.Spec.StorageClassName = value
		case "oldclass":
			v.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: value}
		case "mode":
			v.Spec.VolumeMode = new(corev1.PersistentVolumeMode(value))
		case "attributes":
			v.Spec.VolumeAttributesClassName = &value
		case "label":
			k, l, _ := strings.Cut(value, ":")
			v.Labels = map[string]string{k: l}
		case "phase":
			v.Status.Phase = corev1.PersistentVolumePhase(value)
		case "deleted":
			v.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
		case "for":
			who, uid, _ := strings.Cut(value, "@")
			namespace, name, _ := strings.Cut(who, "/")
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name, UID: types.UID(uid)}
		default:
			t.Fatalf("volume: %s", w)
		}
	}
	return v
}
