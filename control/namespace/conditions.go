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

// describeConditions returns the conditions of a namespace that is being deleted, with upstream's reasons and messages.
func describeConditions(r result, old []corev1.NamespaceCondition, now metav1.Time) []corev1.NamespaceCondition {
	remains, failures := r.remains, r.failures
	out := slices.Clone(old)
	set := func(t corev1.NamespaceConditionType, bad bool, badReason, badMessage, okReason, okMessage string) {
		c := corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: okReason, Message: okMessage,
			LastTransitionTime: now}
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
	set(corev1.NamespaceDeletionDiscoveryFailure, len(r.unknown) > 0, "DiscoveryFailed", undiscoveredMessage(r.unknown),
		"ResourcesDiscovered", "All resources successfully discovered")
	set(corev1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed")
	set(corev1.NamespaceDeletionContentFailure, len(failures) > 0, "ContentDeletionFailed", failureMessage(failures),
		"ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	set(corev1.NamespaceContentRemaining, len(remains) > 0, "SomeResourcesRemain",
		"Some resources are remaining: "+remainingMessage(remains),
		"ContentRemoved", "All content successfully removed")
	finalizers := finalizerMessage(remains)
	set(corev1.NamespaceFinalizersRemaining, finalizers != "", "SomeFinalizersRemain",
		"Some content in the namespace has finalizers remaining: "+finalizers,
		"ContentHasNoFinalizers", "All content-preserving finalizers finished")
	return out
}

// undiscoveredMessage returns the message about group versions whose servers do not answer, as a client of discovery formats it.
func undiscoveredMessage(unknown []schema.GroupVersion) string {
	texts := make([]string, len(unknown))
	for i, gv := range unknown {
		texts[i] = fmt.Sprintf("%[1]s: stale GroupVersion discovery: %[1]s", gv)
	}
	slices.Sort(texts)
	return fmt.Sprintf("Discovery failed for some groups, %d failing: unable to retrieve the complete list of server APIs: %s", len(texts), strings.Join(texts, ", "))
}

func failureMessage(failures []error) string {
	texts := make([]string, len(failures))
	for i, e := range failures {
		texts[i] = e.Error()
	}
	slices.Sort(texts)
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(texts), strings.Join(texts, ", "))
}

func remainingMessage(remains []leftover) string {
	var texts []string
	for _, l := range remains {
		texts = append(texts, fmt.Sprintf("%s has %d resource instances", resourceName(l), l.objects))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// resourceName returns a resource as upstream formats it here, with a dot even before an empty group.
func resourceName(l leftover) string { return l.resource.Resource + "." + l.resource.Group }

func finalizerMessage(remains []leftover) string {
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

// haveChanged reports whether conditions differ in more than their transition times.
func haveChanged(a, b []corev1.NamespaceCondition) bool {
	return !slices.EqualFunc(a, b, func(x, y corev1.NamespaceCondition) bool {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Status, y.Status), cmp.Compare(x.Reason, y.Reason),
			cmp.Compare(x.Message, y.Message)) == 0
	})
}

// differOnlyInNumbers reports whether conditions differ only in the numbers in their messages.
func differOnlyInNumbers(a, b []corev1.NamespaceCondition) bool {
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
	return !haveChanged(blur(a), blur(b))
}
