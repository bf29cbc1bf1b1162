package workload

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

// Hash names a Pod template: it is the value of the label pod-template-hash, and the end of the names of ReplicaSets.
// Kubernetes computes the same for the same template, so that a cluster may change hands. collisions, if there, makes
// another name for a template whose name was taken.
func Hash(template *corev1.PodTemplateSpec, collisions *int32) (string, error) {
	// What was never set and what is empty print differently, and quantities print what they have cached. After a
	// turn through the wire they all print the one way.
	wire, err := template.DeepCopy().Marshal()
	if err != nil {
		return "", fmt.Errorf("hash a pod template: %w", err)
	}
	var plain corev1.PodTemplateSpec
	if err := plain.Unmarshal(wire); err != nil {
		return "", fmt.Errorf("hash a pod template: %w", err)
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(plain))
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(uint32(*collisions))))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32())), nil
}
