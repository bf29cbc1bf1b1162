package persistentvolume

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// checkLines runs check with the words before the "->" of each line of a file, and compares the result with the text after it.
func checkLines(t *testing.T, file string, atLeast int, check func(input []string) string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		input, want, found := strings.Cut(line, "-> ")
		if strings.HasPrefix(line, "#") || !found {
			continue
		}
		n++
		if got := check(strings.Fields(input)); got != strings.TrimSpace(want) {
			t.Errorf("%s\ngot:  %s\nwant: %s", input, got, want)
		}
	}
	if n < atLeast {
		t.Errorf("only %d cases", n)
	}
}

func TestDecideClaim(t *testing.T) {
	checkLines(t, "testdata/claim.cases", 25, func(input []string) string {
		claim, _ := readClaim(t, []string{"1Gi", "RWO"})
		var s claimContext
		for _, word := range input {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "class":
				claim.Spec.StorageClassName = &value
			case "named":
				claim.Spec.VolumeName = "v"
			case "complete":
				metav1.SetMetaDataAnnotation(&claim.ObjectMeta, bindCompleted, "yes")
			case "ours":
				metav1.SetMetaDataAnnotation(&claim.ObjectMeta, boundByController, "yes")
			case "node":
				metav1.SetMetaDataAnnotation(&claim.ObjectMeta, selectedNode, "a")
			case "match":
				s.match = readVolume(t, []string{"m", "1Gi", "RWO"})
			case "volume":
				s.named = readVolume(t, append([]string{"v"}, map[string][]string{
					"free": {"1Gi", "RWO"}, "small": {"1Mi", "RWO"}, "reserved": {"1Gi", "RWO", "for=default/c"},
					"mine": {"1Gi", "RWO", "for=default/c@u"}, "theirs": {"1Gi", "RWO", "for=default/d@x"},
				}[value]...))
			case "provisioner":
				s.class = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: *claim.Spec.StorageClassName}, Provisioner: value}
			case "wait":
				s.class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
			case "default":
				s.defaultClass = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: value}}
			case "pod":
				s.waiting = append(s.waiting, value)
			default:
				t.Fatalf("what is %s?", word)
			}
		}
		p := decideClaim(claim, s)
		out := string(p.phase)
		switch {
		case p.bind != nil:
			out += "bind " + p.bind.Name
		case p.class != "":
			out += "class " + p.class
		case p.provisioner != "":
			out += "provision " + p.provisioner
		}
		for _, e := range append(p.events, p.eventsOnPhaseChange...) {
			out += "; " + e.kind + " " + e.reason + " " + e.text
		}
		if p.err != nil {
			out += "; error"
		}
		return out
	})
}

func TestDecideVolume(t *testing.T) {
	checkLines(t, "testdata/volume.cases", 20, func(input []string) string {
		v := readVolume(t, []string{"v", "1Gi", "RWO", "phase="})
		var claim *corev1.PersistentVolumeClaim
		for _, word := range input {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "for":
				v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "c", UID: types.UID(value)}
			case "ours":
				metav1.SetMetaDataAnnotation(&v.ObjectMeta, boundByController, "yes")
			case "claim":
				claim, _ = readClaim(t, []string{"1Gi", "RWO"})
				claim.Spec.VolumeName = value
			case "block":
				claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
			case "phase":
				v.Status.Phase = corev1.PersistentVolumePhase(value)
			case "policy":
				v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(value)
			case "by":
				metav1.SetMetaDataAnnotation(&v.ObjectMeta, provisionedBy, value)
			case "moved":
				metav1.SetMetaDataAnnotation(&v.ObjectMeta, migratedTo, "x")
			case "path":
				v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: value}
			case "nfs":
				v.Spec.NFS = &corev1.NFSVolumeSource{}
			case "csi":
				v.Spec.CSI = &corev1.CSIPersistentVolumeSource{}
			case "local":
				v.Spec.Local = &corev1.LocalVolumeSource{}
			default:
				t.Fatalf("what is %s?", word)
			}
		}
		return showVolume(v, decideVolume(v, claim))
	})
}

func showVolume(v *corev1.PersistentVolume, p volumePlan) string {
	var out []string
	if p.phase != "" {
		out = append(out, string(p.phase))
	}
	if p.unbind {
		now := "free"
		if unboundVolume(v).Spec.ClaimRef != nil {
			now = "reserved"
		}
		out = append(out, "unbind: "+now)
	}
	if p.reclaim {
		text := "reclaim"
		if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			how, err := decideDeletion(v)
			switch {
			case err != nil:
				text += ": " + err.Error()
			case how == byPath:
				text += " by path"
			default:
				text += " by others"
			}
		}
		out = append(out, text)
	}
	text := strings.Join(out, ", ")
	for _, e := range append(p.toVolume, p.toClaim...) {
		text += "; " + e.kind + " " + e.reason + " " + e.text
	}
	if text == "" {
		return "nothing"
	}
	return text
}

// TestBindingIsIdempotent checks that binding writes each object once, and nothing when it is repeated.
func TestBindingIsIdempotent(t *testing.T) {
	claim, _ := readClaim(t, []string{"1Gi", "RWO"})
	claim.Status.Phase = corev1.ClaimPending
	v, changed := boundVolume(readVolume(t, []string{"v", "2Gi", "RWO,ROX"}), claim)
	if !changed || v.Annotations[boundByController] == "" || v.Spec.ClaimRef.UID != "u" {
		t.Errorf("the volume: %+v", v)
	}
	if _, changed := boundVolume(v, claim); changed {
		t.Error("the volume is bound twice")
	}
	next, changed := boundClaim(claim, v)
	if !changed || next.Spec.VolumeName != "v" || next.Annotations[boundByController] == "" || next.Annotations[bindCompleted] == "" {
		t.Errorf("the claim: %+v", next)
	}
	if _, changed := boundClaim(next, v); changed {
		t.Error("the claim is bound twice")
	}
	status, err := boundStatus(next, v)
	size := status.Capacity[corev1.ResourceStorage]
	if err != nil || status.Phase != corev1.ClaimBound || size.String() != "2Gi" || len(status.AccessModes) != 2 {
		t.Errorf("the status: %+v, %v", status, err)
	}
	next.Status = status
	next.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")} // the file system is behind
	if again, err := boundStatus(next, v); err != nil || !sameStatus(again, next.Status) {
		t.Errorf("the status changes again: %+v, %v", again, err)
	}
	v.Annotations[preResize] = "1536Mi"
	if before, err := boundStatus(claim, v); err != nil || !before.Capacity.Storage().Equal(resource.MustParse("1536Mi")) {
		t.Errorf("the size before a resize: %+v, %v", before, err)
	}
	if lost := unboundStatus(next, corev1.ClaimLost); lost.Phase != corev1.ClaimLost || lost.Capacity != nil || lost.AccessModes != nil {
		t.Errorf("the status of a lost claim: %+v", lost)
	}
}

func TestDefaultClass(t *testing.T) {
	class := func(name, annotation string, age int64) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1000-age, 0)),
			Annotations: map[string]string{annotation: "true"}}}
	}
	plain, old, beta, young := class("plain", "x", 0), class("old", defaultClassAnnotation, 9), class("beta", defaultClassBetaAnnotation,
		5), class("young", defaultClassAnnotation, 5)
	for _, test := range []struct {
		classes []*storagev1.StorageClass
		want    *storagev1.StorageClass
	}{
		{nil, nil}, {[]*storagev1.StorageClass{plain}, nil}, {[]*storagev1.StorageClass{plain, old}, old},
		{[]*storagev1.StorageClass{old, young}, young}, {[]*storagev1.StorageClass{young, beta, old}, beta},
	} {
		if got := defaultClassOf(test.classes); got != test.want {
			t.Errorf("of %d classes got %v", len(test.classes), got)
		}
	}
}

func TestFinalizersAndMigration(t *testing.T) {
	const other = "example.com/x"
	for _, test := range []struct{ by, policy, have, want string }{
		{"", "Delete", other, other},
		{"p.example.com", "Delete", externalFinalizer, externalFinalizer},
		{"kubernetes.io/host-path", "Delete", other, other + " " + ownFinalizer},
		{"kubernetes.io/host-path", "Retain", ownFinalizer + " " + other, other},
		{"kubernetes.io/host-path", "Delete", externalFinalizer + " " + ownFinalizer, ownFinalizer},
		{"kubernetes.io/aws-ebs", "Delete", ownFinalizer + " " + externalFinalizer, externalFinalizer},
	} {
		v := readVolume(t, []string{"v", "1Gi", "RWO"})
		v.Spec.PersistentVolumeReclaimPolicy, v.Finalizers = corev1.PersistentVolumeReclaimPolicy(test.policy), strings.Fields(test.have)
		if test.by != "" {
			v.Annotations = map[string]string{provisionedBy: test.by}
		}
		if got := wantFinalizers(v); !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%+v: %q", test, got)
		}
	}
	for _, test := range []struct {
		have map[string]string
		want string // "" for no change, "-" for none
	}{
		{map[string]string{}, ""},
		{map[string]string{provisionedBy: "p.example.com"}, ""},
		{map[string]string{provisionedBy: "p.example.com", migratedTo: "x"}, "-"},
		{map[string]string{provisionedBy: "kubernetes.io/cinder"}, "cinder.csi.openstack.org"},
		{map[string]string{provisionedBy: "kubernetes.io/cinder", migratedTo: "x"}, "cinder.csi.openstack.org"},
		{map[string]string{provisionedBy: "kubernetes.io/cinder", migratedTo: "cinder.csi.openstack.org"}, ""},
	} {
		got := ""
		if next := migratedAnnotations(test.have, provisionedBy); next != nil {
			if got = next[migratedTo]; got == "" {
				got = "-"
			}
		}
		if got != test.want {
			t.Errorf("%v: %q, want %q", test.have, got, test.want)
		}
	}
}
