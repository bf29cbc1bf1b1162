package hop

import "strings"

// serviceAccountPrefix is the beginning of the name of a service account; its namespace and its own name follow.
const serviceAccountPrefix = "system:serviceaccount:"

// ClientKey returns under which name the requests of a user count where each client has a share of something. Service accounts of one
// namespace count together: whoever may create one there may create many.
func ClientKey(user string) string {
	if !strings.HasPrefix(user, serviceAccountPrefix) {
		return user
	}
	return user[:strings.LastIndexByte(user, ':')]
}
