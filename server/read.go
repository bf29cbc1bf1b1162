package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/watch"
)

// get serves GET of one object or subresource.
func (s *Server) get(ctx context.Context, r *Request) (*Response, error) {
	if r.Sub != nil && r.Sub.Connect != nil {
		return nil, errStream
	}
	obj, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Sub != nil && r.Sub.View != nil {
		view, err := r.Sub.View(obj.DeepCopyObject().(kind.Object))
		if err != nil {
			return nil, err
		}
		view.GetObjectKind().SetGroupVersionKind(r.Sub.Body.GroupVersionKind)
		return ok(view), nil
	}
	return ok(fromHub(r.Def, obj)), nil
}

// find reads the named object, as fresh as the client asks.
func (s *Server) find(ctx context.Context, r *Request) (kind.Object, error) {
	def := r.Def.Storage()
	if def.Computed != nil {
		all, err := s.computed(ctx, r)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			if e.Outline().GetName() == r.Name {
				return e.Object(), nil
			}
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: def.Group, Resource: def.Singular}, r.Name)
	}
	cache := s.State.Cache(def)
	if err := s.reach(ctx, cache, r.Options.List.ResourceVersion); err != nil {
		if bad, ok := errors.AsType[*field.Error](err); ok && def.TTL != 0 {
			return nil, badRequest("invalid resource version: %v", bad)
		}
		return nil, err
	}
	if err := s.State.reconvert(ctx, def, cache, def.Key(r.Namespace, r.Name)); err != nil {
		return nil, err
	}
	e, found, err := lookUp(cache, def.Key(r.Namespace, r.Name))
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, notFound(r.Def, r.Name)
	}
	return e.Object(), nil
}

// reach waits until a cache is as new as the client wants it: any state for "0", a given one, or the newest.
func (s *Server) reach(ctx context.Context, c *watch.Cache, rv string) error {
	if rv == "" {
		return storeError(c.Fresh(ctx))
	}
	rev, err := strconv.ParseUint(rv, 10, 63)
	if err != nil {
		return invalidVersion(rv, err)
	}
	return storeError(c.WaitFor(ctx, int64(rev)))
}

func invalidVersion(rv string, err error) error {
	return field.Invalid(field.NewPath("resourceVersion"), rv, err.Error())
}

// computed makes the objects of a kind that is not stored.
func (s *Server) computed(ctx context.Context, r *Request) ([]*watch.Entry, error) {
	all, err := r.Def.Computed(ctx, s.door(r))
	if err != nil {
		return nil, err
	}
	out := make([]*watch.Entry, 0, len(all))
	keep := r.Options.List.keep(r.Def)
	for _, o := range all {
		o.GetObjectKind().SetGroupVersionKind(r.Def.GroupVersionKind)
		if (r.Namespace == "" || o.GetNamespace() == r.Namespace) && (keep == nil || keep(o)) {
			out = append(out, watch.NewEntry("", o, 0))
		}
	}
	return out, nil
}

// list serves GET of a collection.
func (s *Server) list(ctx context.Context, r *Request) (*Response, error) {
	l, err := s.page(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Response{Code: http.StatusOK, List: l}, nil
}

// page reads a collection or a part of it. What the client says about the resource version decides between the
// cache and the past in the store.
func (s *Server) page(ctx context.Context, r *Request) (*List, error) {
	def := r.Def.Storage()
	if def.Computed != nil {
		items, err := s.computed(ctx, r)
		return &List{Items: items}, err
	}
	o := &r.Options.List
	if o.Continue != "" {
		return s.continued(ctx, r)
	}
	if o.wantsExact() {
		rev, err := strconv.ParseUint(o.ResourceVersion, 10, 63)
		if err != nil {
			return nil, badRequest("invalid resource version: %v", invalidVersion(o.ResourceVersion, err))
		}
		return s.past(ctx, r, int64(rev), scope(def, r.Namespace), false)
	}
	cache := s.State.Cache(def)
	if err := s.reach(ctx, cache, o.ResourceVersion); err != nil {
		if bad, ok := errors.AsType[*field.Error](err); ok {
			return nil, badRequest("invalid resource version: %v", bad)
		}
		return nil, err
	}
	if err := s.State.reconvert(ctx, def, cache, scope(def, r.Namespace)); err != nil {
		return nil, err
	}
	limit := o.Limit
	if o.ResourceVersion == "0" && def.TTL == 0 { // what expires soon is always read in pages
		limit = 0 // whoever takes any state gets it whole
	}
	if limit > 0 {
		// The pages that follow are read from the store at the revision of this one, so it should not be
		// older than what the store still keeps.
		if err := s.recent(ctx, cache); err != nil {
			return nil, err
		}
	}
	keep := o.keep(r.Def)
	if name := o.exact("metadata.name"); name != "" && (def.Scope == kind.Cluster || r.Namespace != "") {
		return one(cache, def.Key(r.Namespace, name), keep)
	}
	warnUnreadable(r, cache.UnreadableKeys(scope(def, r.Namespace)))
	if err := r.work.Begin(ctx); err != nil {
		return nil, err
	}
	entries, rev := cache.List(scope(def, r.Namespace), hubKeep(r.Def, keep))
	r.work.End()
	l := &List{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(rev, 10)}, Items: entries}
	if limit > 0 && int64(len(entries)) > limit {
		l.Items = entries[:limit]
		last := l.Items[limit-1].Key
		l.Meta.Continue = token{Rev: rev, Start: strings.TrimPrefix(last, scope(def, r.Namespace)) + "\x00"}.encode()
		if keep == nil {
			l.Meta.RemainingItemCount = new(int64(len(entries)) - limit)
		}
	}
	return l, nil
}

// wantsExact says that a list is to show the state at exactly the resource version it names: with the match parameter Exact, or, as before there
// was such a parameter, in pages.
func (o *ListOptions) wantsExact() bool {
	if o.ResourceVersion == "" || o.ResourceVersion == "0" {
		return false
	}
	return o.Match == metav1.ResourceVersionMatchExact || o.Match == "" && o.Limit > 0
}

// hubKeep makes a test of objects of the request's version one of stored objects.
func hubKeep(def *kind.Def, keep func(kind.Object) bool) func(kind.Object) bool {
	if keep == nil || def.Hub == nil {
		return keep
	}
	return func(o kind.Object) bool { return keep(def.FromHub(o)) }
}

func one(cache *watch.Cache, key string, keep func(kind.Object) bool) (*List, error) {
	l := &List{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(cache.Rev(), 10)}}
	e, found, err := lookUp(cache, key)
	if found && (keep == nil || keep(e.Outline())) {
		l.Items = []*watch.Entry{e}
	}
	return l, err
}

// recent brings the revision of a quiet cache up to that of the store.
func (s *Server) recent(ctx context.Context, c *watch.Cache) error {
	page, err := s.State.Store.List(ctx, kv.Range{Prefix: c.Prefix, Limit: 1})
	if err != nil {
		return storeError(err)
	}
	return storeError(c.WaitFor(ctx, page.Rev))
}

// token is a continue token: where the next page begins, and the revision of all of them.
type token struct {
	Version string `json:"v"`
	Rev     int64  `json:"rv"`
	Start   string `json:"start"`
}

func (t token) encode() string {
	t.Version = "meta.k8s.io/v1"
	b, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

var errToken = errors.New("continue key is not valid")

func decodeToken(s string) (token, error) {
	var t token
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return t, fmt.Errorf("%w: %w", errToken, err)
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("%w: %w", errToken, err)
	}
	if t.Version != "meta.k8s.io/v1" {
		return t, errors.New("continue key is not valid: server does not recognize this encoded version \"" + t.Version + "\"")
	}
	if t.Rev == 0 {
		return t, fmt.Errorf("%w: incorrect encoded start resourceVersion (version meta.k8s.io/v1)", errToken)
	}
	if t.Start == "" {
		return t, fmt.Errorf("%w: encoded start key empty (version meta.k8s.io/v1)", errToken)
	}
	// The start must stay below the prefix it is joined to.
	if clean := path.Clean("/" + t.Start); strings.TrimSuffix("/"+t.Start, "/") != strings.TrimSuffix(clean, "/") {
		return t, errors.New("continue key is not valid: " + t.Start)
	}
	return t, nil
}

// continued reads the page after a continue token.
func (s *Server) continued(ctx context.Context, r *Request) (*List, error) {
	if rv := r.Options.List.ResourceVersion; rv != "" && rv != "0" {
		return nil, badRequest("specifying resource version is not allowed when using continue")
	}
	t, err := decodeToken(r.Options.List.Continue)
	if err != nil {
		return nil, badRequest("invalid continue token: %v", err)
	}
	prefix := scope(r.Def.Storage(), r.Namespace)
	return s.past(ctx, r, t.Rev, prefix+t.Start, true)
}

// pastPart is how many objects are read from the past at a time, and pastReaders is how many requests do that at a time: how large the
// objects are is known only when they are here.
const pastPart, pastReaders = 100, 4

// pastCost is how many bytes an object of the past takes for each byte in the store. Unlike one of the cache it is nobody else's.
const pastCost = 6

// holds counts what was read of the past as held by the answer, and says whether it may be.
func (r *Request) holds(pairs []kv.Pair) bool {
	if r.answer == nil {
		return true
	}
	size := int64(0)
	for i := range pairs {
		size += int64(len(pairs[i].Value))
	}
	return r.answer.Grow(pastCost * size)
}

// readPast reads a part of the past from the store, and says whether the answer may hold it.
func (s *Server) readPast(ctx context.Context, r *Request, q kv.Range) (page kv.Page, held bool, err error) {
	select {
	case s.pasts <- struct{}{}:
		defer func() { <-s.pasts }()
	case <-ctx.Done():
		return page, false, ctx.Err()
	}
	page, err = s.State.Store.List(ctx, q)
	if held = err == nil && r.holds(page.Pairs); !held {
		page.Pairs = nil
	}
	return page, held, err
}

// past reads a page from the store at a revision. A negative one means the newest: what an inconsistent
// continue token asks for.
func (s *Server) past(ctx context.Context, r *Request, rev int64, from string, isContinue bool) (*List, error) {
	def, o := r.Def.Storage(), &r.Options.List
	prefix := scope(def, r.Namespace)
	keep := hubKeep(r.Def, o.keep(r.Def))
	q := kv.Range{Prefix: prefix, From: from, Limit: pastPart, Rev: max(rev, 0)}
	l, rest := &List{}, int64(0)
	var lost []string
	defer func() { warnUnreadable(r, lost) }()
	for full := false; !full; {
		if o.Limit > 0 && keep == nil {
			q.Limit = min(pastPart, o.Limit-int64(len(l.Items)))
		}
		page, held, err := s.readPast(ctx, r, q)
		if errors.Is(err, kv.ErrCompacted) {
			return nil, expired(isContinue, strings.TrimPrefix(from, prefix))
		}
		if errors.Is(err, kv.ErrFuture) {
			return nil, tooLarge(&watch.TooNew{Asked: rev, Have: s.State.Cache(def).Rev()})
		}
		if err != nil {
			return nil, storeError(err)
		}
		if !q.Uncounted {
			rest, q.Uncounted = page.Total, true
			if rev <= 0 {
				rev = page.Rev
			}
			q.Rev = rev
			l.Meta.ResourceVersion = strconv.FormatInt(rev, 10)
		}
		if full = !held; full && (o.Limit == 0 || len(l.Items) == 0) { // a page may be shorter than its limit, but not empty
			return nil, tooMany()
		}
		for _, p := range page.Pairs {
			e, err := s.State.entry(def, p)
			q.From = p.Key + "\x00"
			rest--
			if err != nil {
				lost = append(lost, p.Key)
				continue
			}
			if keep == nil || keep(e.Outline()) {
				l.Items = append(l.Items, e)
			}
			if full = o.Limit > 0 && int64(len(l.Items)) >= o.Limit; full {
				break
			}
		}
		if rest <= 0 || held && len(page.Pairs) == 0 {
			return l, nil
		}
	}
	l.Meta.Continue = token{Rev: rev, Start: strings.TrimPrefix(q.From, prefix)}.encode()
	if keep == nil {
		l.Meta.RemainingItemCount = &rest
	}
	return l, nil
}

// expired is the answer to a continue token whose revision is gone. It carries a token with which the rest can be
// read, though not of the same moment.
func expired(isContinue bool, start string) error {
	if !isContinue {
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	err := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = token{Rev: -1, Start: start}.encode()
	return err
}
