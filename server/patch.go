package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server/apistatus"
	"proa.dev/server/schema"
	"proa.dev/server/state"
)

// patch serves the four kinds of PATCH, of an object or a subresource: JSON patch, merge patch, strategic merge patch
// and server-side apply.
func (s *Server) patch(ctx context.Context, r *Request) (*Response, error) {
	next, err := s.readPatch(r)
	if err != nil {
		return nil, err
	}
	return s.modify(ctx, r, next)
}

// readPatch decodes a patch once, so that it can be applied to several states of the object.
func (s *Server) readPatch(r *Request) (*change, error) {
	if r.Patch == types.ApplyPatchType {
		return s.applyPatch(r)
	}
	apply, err := s.decoder(r).Patch(r.Patch, r.Body)
	if err != nil {
		return nil, err
	}
	return s.patchBy(r, apply), nil
}

// patchBy returns the change of a patch that applies to the object as the client sees it: in the version of the
// request, or as a projection.
func (s *Server) patchBy(r *Request, apply func(shown kind.Object) (kind.Object, error)) *change {
	return &change{apply: func(old kind.Object) (kind.Object, error) {
		shown := state.FromHub(r.Def, old)
		if r.Sub != nil && r.Sub.View != nil {
			var err error
			if shown, err = r.Sub.View(old); err != nil {
				return nil, err
			}
			shown.GetObjectKind().SetGroupVersionKind(r.Sub.Body.GroupVersionKind)
		}
		next, err := apply(shown)
		if err != nil {
			return nil, err
		}
		if next.GetName() == "" {
			return nil, apistatus.BadRequest("the name of the object (%s based on URL) was undeterminable: name must be provided", r.Name)
		}
		if next.GetName() != r.Name {
			return nil, apistatus.BadRequest("the name of the object (%s) does not match the name on the URL (%s)", next.GetName(), r.Name)
		}
		if r.Sub == nil || r.Sub.View == nil {
			r.Def.Default(next)
		}
		return s.project(r, old, next)
	}}
}

// applyPatch returns the change of a server-side apply: the configuration is merged into the object, and its fields are
// owned by the field manager.
func (s *Server) applyPatch(r *Request) (*change, error) {
	config, err := s.decoder(r).ApplyConfiguration(r.Body)
	if err != nil {
		return nil, err
	}
	if err := matchName(r, config); err != nil {
		return nil, err
	}
	if r.Sub != nil && r.Sub.View != nil {
		return s.applyView(r, config)
	}
	return &change{apply: func(old kind.Object) (kind.Object, error) {
		out, err := s.fields.Manager(r.Def, r.Sub).Apply(old, runtime.DeepCopyJSON(config), r.Options.Manager,
			schema.Force(r.Options.Force))
		if err != nil {
			return nil, redactError(r, err)
		}
		obj := out.(kind.Object)
		obj.GetObjectKind().SetGroupVersionKind(r.Def.Storage().GroupVersionKind)
		r.Def.Storage().Default(obj)
		return obj, nil
	}}, nil
}

// matchName sets the name of an applied configuration to that of the URL when it has none, and refuses another one.
func matchName(r *Request, config map[string]any) error {
	meta, ok := config["metadata"].(map[string]any)
	if !ok {
		if config["metadata"] != nil {
			return apistatus.BadRequest("metadata must be an object")
		}
		meta = map[string]any{}
		config["metadata"] = meta
	}
	if name, given := meta["name"]; !given || name == "" {
		meta["name"] = r.Name
	} else if name != r.Name {
		return apistatus.BadRequest("the name of the object (%v) does not match the name on the URL (%s)", name, r.Name)
	}
	return nil
}

// applyView returns the change of a server-side apply to a projection: the field manager that applies a scale owns the
// replicas of the object itself.
func (s *Server) applyView(r *Request, config map[string]any) (*change, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if _, err := s.decoder(r).Object(text, codec.JSON, r.Sub.Body.GroupVersionKind, r.Sub.Body.New()); err != nil {
		return nil, err
	}
	def := r.Def.Storage()
	manager := s.Owner.For(schema.Target{Kind: r.Sub.Body.GroupVersionKind, Subresource: r.Sub.Name})
	return &change{apply: func(old kind.Object) (kind.Object, error) {
		live, err := r.Sub.View(old)
		if err != nil {
			return nil, err
		}
		scale, owners, err := manager.ApplyScale(schema.ScaleApply{
			ParentKind: def.GroupVersionKind, ReplicasPath: r.Sub.ReplicasPath, ParentOwners: old.GetManagedFields(), Live: live,
			Patch: runtime.DeepCopyJSON(config), Manager: r.Options.Manager, Force: schema.Force(r.Options.Force),
		})
		if err != nil {
			return nil, err
		}
		obj, err := s.project(r, old, scale.(kind.Object))
		if err != nil {
			return nil, err
		}
		obj.SetManagedFields(owners)
		return obj, nil
	}}, nil
}

// redactError removes the values from an error of apply about wrong types when the kind is confidential: the error is
// no Status, so it is logged.
func redactError(r *Request, err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) || !r.Def.Confidential {
		return err
	}
	lines := strings.Split(err.Error(), "\n")
	for i, l := range lines {
		lines[i], _, _ = strings.Cut(l, ", got ")
	}
	return errors.New(strings.Join(lines, "\n"))
}
