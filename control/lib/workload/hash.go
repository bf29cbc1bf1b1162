package workload

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

// Hash returns the hash of a Pod template: the value of the label pod-template-hash, and the suffix of the names of
// ReplicaSets. Upstream computes the same hash for the same template, so that a cluster can be migrated. collisions, if not
// nil, gives another hash to a template whose name was taken.
func Hash(template *corev1.PodTemplateSpec, collisions *int32) (string, error) {
	// Nil and empty fields print differently, and quantities print the text that they have cached. Encoding and decoding
	// makes equal templates print equally.
	wire, err := template.DeepCopy().Marshal()
	if err != nil {
		return "", fmt.Errorf("hash a pod template: %w", err)
	}
	var canonical corev1.PodTemplateSpec
	if err := canonical.Unmarshal(wire); err != nil {
		return "", fmt.Errorf("hash a pod template: %w", err)
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(canonical))
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(uint32(*collisions))))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32())), nil
}
