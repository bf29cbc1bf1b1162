package namespace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// describe makes the conditions of a namespace that is being emptied, in the words clients know.
func describe(r result, old []corev1.NamespaceCondition, now metav1.Time) []corev1.NamespaceCondition {
	remains, failures := r.remains, r.failures
	out := slices.Clone(old)
	set := func(t corev1.NamespaceConditionType, bad bool, badReason, badMessage, okReason, okMessage string) {
		c := corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: okReason, Message: okMessage, LastTransitionTime: now}
		if bad {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, badReason, badMessage
		}
		i := slices.IndexFunc(out, func(o corev1.NamespaceCondition) bool { return o.Type == t })
		if i < 0 {
			out = append(out, c)
			return
		}
		if out[i].Status == c.Status {
			c.LastTransitionTime = out[i].LastTransitionTime
		}
		out[i] = c
	}
	set(corev1.NamespaceDeletionDiscoveryFailure, len(r.unknown) > 0, "DiscoveryFailed", undiscovered(r.unknown), "ResourcesDiscovered", "All resources successfully discovered")
	set(corev1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed")
	set(corev1.NamespaceDeletionContentFailure, len(failures) > 0, "ContentDeletionFailed", failed(failures),
		"ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	set(corev1.NamespaceContentRemaining, len(remains) > 0, "SomeResourcesRemain", "Some resources are remaining: "+resources(remains),
		"ContentRemoved", "All content successfully removed")
	held := finalizers(remains)
	set(corev1.NamespaceFinalizersRemaining, held != "", "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+held,
		"ContentHasNoFinalizers", "All content-preserving finalizers finished")
	return out
}

// undiscovered is what a client of discovery says of group versions whose servers do not answer.
func undiscovered(unknown []schema.GroupVersion) string {
	texts := make([]string, len(unknown))
	for i, gv := range unknown {
		texts[i] = fmt.Sprintf("%[1]s: stale GroupVersion discovery: %[1]s", gv)
	}
	slices.Sort(texts)
	return fmt.Sprintf("Discovery failed for some groups, %d failing: unable to retrieve the complete list of server APIs: %s", len(texts), strings.Join(texts, ", "))
}

func failed(failures []error) string {
	texts := make([]string, len(failures))
	for i, e := range failures {
		texts[i] = e.Error()
	}
	slices.Sort(texts)
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(texts), strings.Join(texts, ", "))
}

func resources(remains []left) string {
	var texts []string
	for _, l := range remains {
		texts = append(texts, fmt.Sprintf("%s has %d resource instances", name(l), l.objects))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// name is how the namespace controller has always written resources: with the group and a dot.
func name(l left) string { return l.resource.Resource + "." + l.resource.Group }

func finalizers(remains []left) string {
	count := map[string]int{}
	for _, l := range remains {
		for f, n := range l.finalizers {
			count[f] += n
		}
	}
	var texts []string
	for _, f := range slices.Sorted(maps.Keys(count)) {
		texts = append(texts, fmt.Sprintf("%s in %d resource instances", f, count[f]))
	}
	return strings.Join(texts, ", ")
}

// changed says whether conditions differ in more than the time.
func changed(a, b []corev1.NamespaceCondition) bool {
	return !slices.EqualFunc(a, b, func(x, y corev1.NamespaceCondition) bool {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Status, y.Status), cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Message, y.Message)) == 0
	})
}

// onlyNumbers says that conditions that differ say the same with other numbers.
func onlyNumbers(a, b []corev1.NamespaceCondition) bool {
	blur := func(list []corev1.NamespaceCondition) []corev1.NamespaceCondition {
		list = slices.Clone(list)
		for i := range list {
			list[i].Message = strings.Map(func(r rune) rune {
				if r >= '0' && r <= '9' {
					return -1
				}
				return r
			}, list[i].Message)
		}
		return list
	}
	return !changed(blur(a), blur(b))
}
