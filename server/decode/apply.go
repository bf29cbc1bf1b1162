package decode

import (
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/server/apistatus"
)

// ApplyConfiguration reads the YAML or JSON of a server-side apply as the fields that it sets.
func (d *Decoder) ApplyConfiguration(body []byte) (map[string]any, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(body, &config); err != nil {
		return nil, apistatus.BadRequest("error encoding patch: %s", strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	if d.Def.JSONOnly && (d.Sub == nil || d.Sub.Body == nil) {
		config = keepInts(config)
	}
	if d.isStrict() {
		if err := yaml.UnmarshalStrict(body, &map[string]any{}); err != nil {
			if d.Validation == metav1.FieldValidationStrict {
				return nil, apistatus.BadRequest("error strict decoding patch: %v", err)
			}
			d.warnOfFindings(err)
		}
	}
	if err := quantity.CheckValue(config, reflect.TypeOf(d.newObject())); err != nil {
		return nil, apistatus.BadRequest("error decoding patch: %v", err)
	}
	return config, nil
}

// keepInts makes the whole numbers of an applied configuration integers, as they are in stored custom objects: these
// have no Go type that would convert them later.
func keepInts(config map[string]any) map[string]any {
	text, err := json.Marshal(config)
	if err != nil {
		return config
	}
	out := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &out); err != nil {
		return config
	}
	return out
}
