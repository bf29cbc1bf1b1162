package kind

// OlderVersion is another version in which objects of a kind may have been stored, by an older server or by one of Kubernetes.
type OlderVersion struct {
	Version string
	// New returns an empty object of this version. It is nil where the version has the JSON and protobuf fields of
	// the hub: stored objects are then decoded as the hub.
	New func() Object
	// Convert converts an object to the hub.
	Convert func(Object) (Object, error)
}

// SameLayout returns versions that differ from the hub by name only.
func SameLayout(versions ...string) (out []OlderVersion) {
	for _, v := range versions {
		out = append(out, OlderVersion{Version: v})
	}
	return out
}

// Older returns a version whose objects are converted when they are read.
func Older[T, O any, P interface {
	*T
	Object
}, Q interface {
	*O
	Object
}](version string, convert func(*O) (*T, error)) OlderVersion {
	return OlderVersion{
		Version: version,
		New:     func() Object { return Q(new(O)) },
		Convert: func(old Object) (Object, error) {
			obj, err := convert((*O)(old.(Q)))
			if err != nil {
				return nil, err
			}
			return P(obj), nil
		},
	}
}

// OlderVersion returns how objects that were stored in another version than this one are read.
func (d *Def) OlderVersion(version string) (OlderVersion, bool) {
	for _, o := range d.Older {
		if o.Version == version {
			return o, true
		}
	}
	return OlderVersion{}, false
}
