package objects

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/kinds/lib/gr"
)

// longestSelector limits the length of a label selector of a projection.
const longestSelector = 100 * 1024

// Anchors returns the certificates of a clusterTrustBundle projection, in PEM, without duplicates. Their order is
// stable in this process, but differs between processes: nobody shall depend on it.
func (r *Refs) Anchors(ctx context.Context, p *corev1.Pod, s *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	optional := s.Optional != nil && *s.Optional
	if s.Name == nil && s.SignerName == nil {
		return nil, errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
	}
	e, isNew, err := r.acquire(ctx, p.UID, key{on: gr.ClusterTrustBundles})
	if err != nil {
		return nil, err
	}
	if err := e.wait(ctx); err != nil {
		return nil, err
	}
	if isNew {
		if err := e.view.Reach(ctx, 0); err != nil {
			return nil, err
		}
	}
	if s.Name != nil {
		o, found := e.view.Get("", *s.Name)
		b, ok := o.(*certificatesv1.ClusterTrustBundle)
		switch {
		case found && ok:
			return anchors([]*certificatesv1.ClusterTrustBundle{b}, r.seed), nil
		case optional:
			return nil, nil
		}
		return nil, fmt.Errorf("while getting ClusterTrustBundle: %w", apierrors.NewNotFound(gr.ClusterTrustBundles, *s.Name))
	}
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("while parsing label selector: %w", err)
	}
	if n := len(selector.String()); n > longestSelector {
		return nil, fmt.Errorf("label selector length (%d) is larger than %d", n, longestSelector)
	}
	var found []*certificatesv1.ClusterTrustBundle
	for o := range e.view.List("") {
		if b, ok := o.(*certificatesv1.ClusterTrustBundle); ok && b.Spec.SignerName == *s.SignerName &&
			selector.Matches(labels.Set(b.Labels)) {
			found = append(found, b)
		}
	}
	if len(found) == 0 && !optional {
		return nil, errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
	}
	return anchors(found, r.seed), nil
}

// anchors concatenates the certificates of bundles.
func anchors(bundles []*certificatesv1.ClusterTrustBundle, seed uint64) []byte {
	type anchor struct {
		place uint64
		der   []byte
	}
	var all []anchor
	seen := map[string]bool{}
	for _, b := range bundles {
		rest := []byte(b.Spec.TrustBundle)
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if !seen[string(block.Bytes)] {
				seen[string(block.Bytes)] = true
				all = append(all, anchor{orderOf(seed, block.Bytes), block.Bytes})
			}
		}
	}
	slices.SortFunc(all, func(a, b anchor) int {
		return cmp.Or(cmp.Compare(a.place, b.place), bytes.Compare(a.der, b.der))
	})
	var out bytes.Buffer
	for _, a := range all {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der}))
	}
	return out.Bytes()
}

func seed() uint64 { return rand.Uint64() } //nolint:gosec // G404: it decides an order, and is no secret

// orderOf returns the position of a certificate in the order of a seed.
func orderOf(seed uint64, der []byte) uint64 {
	h := seed ^ 14695981039346656037
	for _, b := range der {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}
