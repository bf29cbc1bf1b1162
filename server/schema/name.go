package schema

import (
	"strings"
	"unicode"
	"unicode/utf8"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// ManagerName returns the name under which a request owns fields: its fieldManager parameter, or else the start of its
// user agent up to the first slash, without unprintable characters and cut to length.
func ManagerName(fieldManager, userAgent string) string {
	if fieldManager != "" {
		return fieldManager
	}
	product, _, _ := strings.Cut(userAgent, "/")
	var b strings.Builder
	for _, r := range product {
		if !unicode.IsPrint(r) {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > metavalidation.FieldManagerMaxLength {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
