package server

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

	"proa.dev/kinds/codec"
)

// shape is what a client wants to see: the objects themselves, their metadata, or a table of them.
type shape uint8

const (
	whole shape = iota
	partial
	tabular
)

// format is how an answer is to be written. It is comparable, and the same for all who see the same bytes.
type format struct {
	media codec.Media
	shape shape
	// include says what a table row carries besides its cells.
	include metav1.IncludeObjectPolicy
	// group and version name the served version of the objects.
	group, version string
	// meta is the version of the table or metadata; empty means v1.
	meta   string
	pretty bool
	// listed says that the client asked for a list of metadata, or for one object's.
	listed bool
	// forNodes says that objects are shown in the form that their kind has for nodes.
	forNodes bool
}

// accepted lists the media types in the words of the refusal.
const accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"

const streamed = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"

func notAcceptable(text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: text,
	}}
}

// suits refuses the metadata of a list for one object, and of one object for a list.
func (f format) suits(r *Request) error {
	if f.shape != partial || r.Verb == "watch" || f.listed == (r.Verb == "list") {
		return nil
	}
	pkg, _, _ := strings.Cut(r.Def.Group, ".")
	if pkg == "" || pkg == "events" {
		pkg = "core"
	}
	if f.listed {
		return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadataList, but the requested object is not a list (*%s.%s)", pkg, r.Def.Kind))
	}
	return notAcceptable(fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%s.%sList)", pkg, r.Def.Kind))
}

// checkInclude refuses what a table row cannot carry.
func checkInclude(p metav1.IncludeObjectPolicy) error {
	switch p {
	case "", metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return nil
	}
	return badRequest("Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", p)
}

// unroutable says that a request was refused for its media types before anything knew what it is about.
func unroutable(r *Request, err error) bool {
	st := statusOf(err)
	if st.Code == http.StatusNotAcceptable {
		return !strings.HasPrefix(st.Message, "you requested")
	}
	return st.Code == http.StatusUnsupportedMediaType && r.Verb == "patch"
}

func unsupportedMedia(list string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %v", list),
	}}
}

// negotiate chooses the format of an answer from the Accept header. shapes says whether tables and metadata may be asked for;
// stream that the answer is a watch, jsonOnly that the objects have no protobuf form.
func negotiate(req *http.Request, shapes, stream, jsonOnly bool) (format, error) {
	f := format{media: codec.JSON, pretty: wantsPretty(req)}
	header := req.Header.Get("Accept")
	if header == "" || header == "*/*" {
		return f, nil
	}
	known := false
	for _, clause := range preferred(header) {
		name, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil {
			continue
		}
		if got, ok := clauseFormat(f, name, params, shapes, stream); ok && (!jsonOnly || got.media != codec.Proto || got.shape != whole) {
			return got, nil
		}
		_, here := codec.MediaOf(name)
		known = known || here || strings.Contains(name, "*")
	}
	list := accepted
	switch {
	case !known && stream:
		list += ", " + streamed
	case stream:
		list = streamed
	}
	if !known {
		return f, refused(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+list)
	}
	return f, notAcceptable("only the following media types are accepted: " + list)
}

// preferred are the clauses of an Accept header, those with the highest weight first.
func preferred(header string) []string {
	clauses := strings.Split(header, ",")
	if !strings.Contains(header, "q=") { // as nearly always: then all weigh the same
		return clauses
	}
	slices.SortStableFunc(clauses, func(a, b string) int { return cmp.Compare(weight(b), weight(a)) })
	return clauses
}

// weight is how much a client wants what a clause names; what says nothing about it, or nonsense, weighs one.
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

func clauseFormat(f format, name string, params map[string]string, shapes, stream bool) (format, bool) {
	switch name {
	case "*/*", "application/*", "application/json":
	case "application/yaml":
		if stream {
			return f, false
		}
		f.media = codec.YAML
	case "application/vnd.kubernetes.protobuf":
		f.media = codec.Proto
	default:
		return f, false
	}
	f.pretty = f.pretty || params["pretty"] == "1"
	as, asked := params["as"]
	if !asked {
		return f, true
	}
	v := params["v"]
	if params["g"] != metav1.GroupName || (v != "v1" && v != "v1beta1") || !shapes {
		return f, false
	}
	if v != "v1" {
		f.meta = v
	}
	switch as {
	case "Table":
		f.shape = tabular
		if f.media == codec.Proto {
			return f, false
		}
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		f.shape, f.listed = partial, as == "PartialObjectMetadataList"
	default:
		return f, false
	}
	return f, true
}

// wantsPretty says whether the answer is for the eyes of a person.
func wantsPretty(req *http.Request) bool {
	if s, given := req.URL.Query()["pretty"]; given {
		return s[0] != "0" && !strings.EqualFold(s[0], "false")
	}
	agent := req.Header.Get("User-Agent")
	return strings.HasPrefix(agent, "curl/") || strings.HasPrefix(agent, "Wget/") || strings.HasPrefix(agent, "Mozilla/")
}
