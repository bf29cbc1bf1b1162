package celenv

import "testing"

func TestQuantities(t *testing.T) {
	for text, want := range map[string]string{
		"self.quantity > 3":                                "",
		"quantity(self.size).isInteger()":                  "fields",
		"self.sizes[0].all(s, isQuantity(s.value))":        "fields",
		"self.m.all(k, isQuantity(self.m[k]))":             "fields",
		"quantity\n(oldSelf).compareTo(quantity('1Gi'))":   "fields",
		"quantity('1e' + '-9').isInteger()":                "computed",
		"self.split(':').all(p, isQuantity(p))":            "computed",
		"self.a.map(x, x + '1').all(y, isQuantity(y))":     "computed",
		"cel.bind(x, self.a.trim(), isQuantity(x))":        "computed",
		"isQuantity(self.matches('a') ? self.a : self.b)":  "computed",
		"self.a.all(x, self.all(x, isQuantity(x.trim())))": "computed",
		"isQuantity('1e1000')":                             "the exponent of a quantity has at most 3 digits",
		"isQuantity('\\x31e1000')":                         "the exponent of a quantity has at most 3 digits",
		"self.m.all(k, v, isQuantity(v))":                  "fields",
		"self.m.trim().all(k, v, isQuantity(v))":           "computed",
		"quantity(self.size":                               "",
	} {
		r, got := Quantities(text, "self", "oldSelf"), ""
		switch {
		case r.Err != nil:
			got = r.Err.Error()
		case r.Computed:
			got = "computed"
		case r.Fields:
			got = "fields"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
