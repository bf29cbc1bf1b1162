package resource

import (
	"encoding/json"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
)

// The v1beta1 forms differ from v1 in two places: what a request for devices asks for stands beside its name instead of in
// "exactly", and the properties of a device stand in "basic" instead of beside its name. All other fields have the same names in JSON.

// asV1 returns an object of v1 with the fields that have the same JSON names.
func asV1[T any](old any) (*T, error) {
	text, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, json.Unmarshal(text, out)
}

func claimFromV1beta1(old *resourcev1beta1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	out, err := asV1[resourcev1.ResourceClaim](old)
	if err != nil {
		return nil, err
	}
	return out, addExactRequests(out.Spec.Devices.Requests, old.Spec.Devices.Requests)
}

func templateFromV1beta1(old *resourcev1beta1.ResourceClaimTemplate) (*resourcev1.ResourceClaimTemplate, error) {
	out, err := asV1[resourcev1.ResourceClaimTemplate](old)
	if err != nil {
		return nil, err
	}
	return out, addExactRequests(out.Spec.Spec.Devices.Requests, old.Spec.Spec.Devices.Requests)
}

// addExactRequests sets what requests ask for, unless they are lists of alternatives.
func addExactRequests(requests []resourcev1.DeviceRequest, old []resourcev1beta1.DeviceRequest) (err error) {
	for i := range old {
		if old[i].DeviceClassName == "" {
			continue
		}
		if requests[i].Exactly, err = asV1[resourcev1.ExactDeviceRequest](old[i]); err != nil {
			return err
		}
	}
	return nil
}

func sliceFromV1beta1(old *resourcev1beta1.ResourceSlice) (*resourcev1.ResourceSlice, error) {
	out, err := asV1[resourcev1.ResourceSlice](old)
	if err != nil {
		return nil, err
	}
	for i, d := range old.Spec.Devices {
		if d.Basic == nil {
			continue
		}
		device, err := asV1[resourcev1.Device](d.Basic)
		if err != nil {
			return nil, err
		}
		device.Name = d.Name
		out.Spec.Devices[i] = *device
	}
	return out, nil
}
