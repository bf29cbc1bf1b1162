package openapi

import (
	"strings"
	"unicode"
)

// operationID puts the group and version of a path between the verb of an operation and its object:
// list + NamespacedPod becomes listCoreV1NamespacedPod.
func operationID(group, version, verb, object string) string {
	return verb + camel(groupWord(group), true) + camel(version, true) + camel(object, true)
}

// groupWord returns the group as operation IDs and tags name it.
func groupWord(group string) string {
	if group == "" {
		return "core"
	}
	return strings.TrimSuffix(group, ".k8s.io")
}

// tag returns the tag of the operations of a group version.
func tag(group, version string) string {
	if version == "" {
		return camel(groupWord(group), false)
	}
	return camel(groupWord(group), false) + "_" + camel(version, false)
}

// camel drops what is not a letter, digit or underscore, and capitalizes the letter after it.
func camel(s string, upper bool) string {
	var b strings.Builder
	for i, r := range s {
		if !unicode.IsLetter(r) && r != '_' && (i == 0 || !unicode.IsDigit(r)) {
			upper = true
			continue
		}
		if upper {
			r, upper = unicode.ToUpper(r), false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// withArticle puts "a" or "an" before a kind, and nothing before a plural one such as Endpoints.
func withArticle(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		return kind
	case strings.ContainsRune("aeiouAEIOU", rune(kind[0])):
		return "an " + kind
	}
	return "a " + kind
}

// definition returns the name of the schema of a built-in kind.
func definition(group, version, kind string) string {
	first, _, _ := strings.Cut(group, ".")
	switch {
	case group == "":
		return "io.k8s.api.core." + version + "." + kind
	case group == "apiextensions.k8s.io":
		return "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions." + version + "." + kind
	case group == "apiregistration.k8s.io":
		return "io.k8s.kube-aggregator.pkg.apis.apiregistration." + version + "." + kind
	case group == "metrics.k8s.io":
		return "io.k8s.metrics.pkg.apis.metrics." + version + "." + kind
	}
	return "io.k8s.api." + first + "." + version + "." + kind
}

const metaV1 = "io.k8s.apimachinery.pkg.apis.meta.v1."
