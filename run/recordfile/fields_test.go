package recordfile

import (
	"reflect"
	"testing"

	"proa.dev/hop"
)

// TestEveryFieldIsTested checks that the record with which encoding is tested has a value in every field: one that was added, and is not
// encoded, must not be forgotten.
func TestEveryFieldIsTested(t *testing.T) {
	r := fullRecord(1)
	for _, value := range []any{r, *r.Origin, r.Steps[0]} {
		v := reflect.ValueOf(value)
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Wire" {
				t.Errorf("%T has nothing in its field %s", value, name)
			}
		}
	}
	if _, err := decode(encode([]hop.Record{r})); err != nil {
		t.Error(err)
	}
}
