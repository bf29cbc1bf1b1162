package httpapi

import (
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/collection"
)

// parseOptions sets the options of a request from its query.
func parseOptions(r *server.Request, q url.Values, noWatchList bool) error {
	o := &r.Options
	if s := q.Get("timeoutSeconds"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return apistatus.BadRequest("strconv.ParseInt: parsing %q: invalid syntax", s)
		}
		o.List.TimeoutSeconds = n
	}
	switch r.Verb {
	case "list", "watch", "deletecollection":
		if err := parseListOptions(r, q, noWatchList); err != nil {
			return err
		}
	}
	dry := q["dryRun"]
	o.DryRun = len(dry) > 0
	o.Manager, o.Validation = q.Get("fieldManager"), q.Get("fieldValidation")
	var errs field.ErrorList
	kindOf := ""
	switch r.Verb {
	case "create":
		kindOf = "CreateOptions"
		errs = metav1validation.ValidateCreateOptions(&metav1.CreateOptions{DryRun: dry, FieldManager: o.Manager,
			FieldValidation: o.Validation})
	case "update":
		kindOf = "UpdateOptions"
		errs = metav1validation.ValidateUpdateOptions(&metav1.UpdateOptions{DryRun: dry, FieldManager: o.Manager,
			FieldValidation: o.Validation})
	case "patch":
		kindOf = "PatchOptions"
		opts := &metav1.PatchOptions{DryRun: dry, FieldManager: o.Manager, FieldValidation: o.Validation}
		if s := q.Get("force"); s != "" {
			b := s != "0" && !strings.EqualFold(s, "false")
			opts.Force, o.Force = &b, b
		}
		errs = metav1validation.ValidatePatchOptions(opts, r.Patch)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kindOf}, "", errs)
	}
	if o.FieldValidation = o.Validation; o.FieldValidation == "" {
		o.Validation = metav1.FieldValidationWarn
	}
	return nil
}

// parseListOptions sets the options of a list, watch or deletecollection from its query.
func parseListOptions(r *server.Request, q url.Values, noWatchList bool) error {
	l := &r.Options.List
	var err error
	if s := q.Get("labelSelector"); s != "" {
		if l.Labels, err = labels.Parse(s); err != nil {
			return apistatus.BadRequest("%v", err)
		}
	}
	if s := q.Get("fieldSelector"); s != "" {
		if l.Fields, err = fields.ParseSelector(s); err != nil {
			return apistatus.BadRequest("%v", err)
		}
		if l.Fields, err = collection.CheckFields(r.Def, l.Fields); err != nil {
			return err
		}
	}
	if err := selectName(l, r.Name); err != nil {
		return err
	}
	if s := q.Get("limit"); s != "" {
		if l.Limit, err = strconv.ParseInt(s, 10, 64); err != nil {
			return apistatus.BadRequest("strconv.ParseInt: parsing %q: invalid syntax", s)
		}
	}
	l.Continue, l.ResourceVersion = q.Get("continue"), q.Get("resourceVersion")
	l.Match = metav1.ResourceVersionMatch(q.Get("resourceVersionMatch"))
	l.Bookmarks = queryBool(q, "allowWatchBookmarks")
	if q.Has("sendInitialEvents") {
		b := queryBool(q, "sendInitialEvents")
		l.Initial = &b
	}
	if r.Verb == "deletecollection" {
		return nil
	}
	in := &internalversion.ListOptions{
		Watch: r.Verb == "watch", ResourceVersion: l.ResourceVersion, ResourceVersionMatch: l.Match, Limit: l.Limit,
		Continue: l.Continue, AllowWatchBookmarks: l.Bookmarks, SendInitialEvents: l.Initial,
	}
	internalversion.SetListOptionsDefaults(in, !noWatchList)
	if errs := listvalidation.ValidateListOptions(in, !noWatchList); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return nil
}

// selectName selects the object that the path of a watch names, and refuses a field selector for another name.
func selectName(l *collection.Options, name string) error {
	switch {
	case name == "":
	case l.Fields == nil || l.Fields.Empty():
		l.Fields = fields.OneTermEqualSelector("metadata.name", name)
	case l.ExactField("metadata.name") != name:
		return apistatus.BadRequest("fieldSelector metadata.name doesn't match requested name")
	}
	return nil
}

// queryBool returns a query parameter as a boolean: everything but "0" and "false" is true.
func queryBool(q url.Values, name string) bool {
	if !q.Has(name) {
		return false
	}
	s := q.Get(name)
	return s != "0" && !strings.EqualFold(s, "false")
}
