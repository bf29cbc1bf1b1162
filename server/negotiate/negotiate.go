// Package negotiate chooses the format of an answer by the Accept header of a request, in which Kubernetes clients also ask
// for tables and for metadata alone.
package negotiate

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/encode"
)

// AcceptedMediaTypes lists the media types of objects for error messages.
const AcceptedMediaTypes = "application/json, application/yaml, application/vnd.kubernetes.protobuf"

const acceptedStreamTypes = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"

// notAcceptable returns the error 406.
func notAcceptable(text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: text,
	}}
}

// CheckShape refuses PartialObjectMetadataList for one object, and PartialObjectMetadata for a list.
func CheckShape(f encode.Format, r *server.Request) error {
	if f.Shape != encode.MetadataOnly || r.Verb == "watch" || f.MetadataList == (r.Verb == "list") {
		return nil
	}
	pkg, _, _ := strings.Cut(r.Def.Group, ".")
	if pkg == "" || pkg == "events" {
		pkg = "core"
	}
	if f.MetadataList {
		return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (*%s.%s)", pkg, r.Def.Kind))
	}
	return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%s.%sList)", pkg, r.Def.Kind))
}

// CheckInclude refuses an invalid includeObject of a Table.
func CheckInclude(p metav1.IncludeObjectPolicy) error {
	switch p {
	case "", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return nil
	}
	return apistatus.BadRequest("Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", p)
}

// IsMediaTypeError says that a request was refused for its media types, which upstream does before it warns of
// deprecated versions.
func IsMediaTypeError(r *server.Request, err error) bool {
	st := apistatus.Of(err)
	if st.Code == http.StatusNotAcceptable {
		return !strings.HasPrefix(st.Message, "you requested")
	}
	return st.Code == http.StatusUnsupportedMediaType && r.Verb == "patch"
}

// UnsupportedMedia returns the error 415.
func UnsupportedMedia(list string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %v", list),
	}}
}

// Format chooses the format of an answer by the Accept header. shapes says that Tables and metadata can be asked
// for, stream that the answer is a watch, jsonOnly that the objects have no protobuf form.
func Format(req *http.Request, shapes, stream, jsonOnly bool) (encode.Format, error) {
	f := encode.Format{Media: codec.JSON, Pretty: WantsPretty(req)}
	header := req.Header.Get("Accept")
	if header == "" || header == "*/*" {
		return f, nil
	}
	known := false
	for _, clause := range clausesByWeight(header) {
		name, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil {
			continue
		}
		if got, ok := clauseFormat(f, name, params, shapes, stream); ok &&
			(!jsonOnly || got.Media != codec.Proto || got.Shape != encode.Whole) {
			return got, nil
		}
		_, here := codec.MediaOf(name)
		known = known || here || strings.Contains(name, "*")
	}
	list := AcceptedMediaTypes
	switch {
	case !known && stream:
		list += ", " + acceptedStreamTypes
	case stream:
		list = acceptedStreamTypes
	}
	if !known {
		return f, apistatus.Refused(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
			"406: Not Acceptable\n\nAvailable representations: "+list)
	}
	return f, notAcceptable("only the following media types are accepted: " + list)
}

// clausesByWeight returns the clauses of an Accept header, those with the highest weight first.
func clausesByWeight(header string) []string {
	clauses := strings.Split(header, ",")
	if !strings.Contains(header, "q=") { // the usual case: all have the same weight
		return clauses
	}
	slices.SortStableFunc(clauses, func(a, b string) int { return cmp.Compare(weight(b), weight(a)) })
	return clauses
}

// weight returns the weight of a clause: its parameter q, or 1 when that is missing or invalid.
func weight(clause string) float64 {
	for param := range strings.SplitSeq(clause, ";") {
		if q, given := strings.CutPrefix(strings.TrimSpace(param), "q="); given {
			if v, err := strconv.ParseFloat(q, 64); err == nil && v >= 0 && v <= 1 {
				return v
			}
		}
	}
	return 1
}

// clauseFormat returns the format that a clause of an Accept header asks for, and whether it is one that is served.
func clauseFormat(f encode.Format, name string, params map[string]string, shapes, stream bool) (encode.Format, bool) {
	switch name {
	case "*/*", "application/*", "application/json":
	case "application/yaml":
		if stream {
			return f, false
		}
		f.Media = codec.YAML
	case "application/vnd.kubernetes.protobuf":
		f.Media = codec.Proto
	default:
		return f, false
	}
	f.Pretty = f.Pretty || params["pretty"] == "1"
	as, asked := params["as"]
	if !asked {
		return f, true
	}
	v := params["v"]
	if params["g"] != metav1.GroupName || (v != "v1" && v != "v1beta1") || !shapes {
		return f, false
	}
	if v != "v1" {
		f.Meta = v
	}
	switch as {
	case "Table":
		f.Shape = encode.Table
		if f.Media == codec.Proto {
			return f, false
		}
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		f.Shape, f.MetadataList = encode.MetadataOnly, as == "PartialObjectMetadataList"
	default:
		return f, false
	}
	return f, true
}

// WantsPretty says that the answer is indented: the client asks for it, or is curl, wget or a browser.
func WantsPretty(req *http.Request) bool {
	if s, given := req.URL.Query()["pretty"]; given {
		return s[0] != "0" && !strings.EqualFold(s[0], "false")
	}
	agent := req.Header.Get("User-Agent")
	return strings.HasPrefix(agent, "curl/") || strings.HasPrefix(agent, "Wget/") || strings.HasPrefix(agent, "Mozilla/")
}
