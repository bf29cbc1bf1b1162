package authn

import "time"

// The limits of the token cache. A token stays for maxTokenAge or until it expires; its expiry is checked again at every
// use, so the age only limits memory. Tokens are found by their hash, so that the memory of the cache contains no token.
const (
	maxTokens   = 16384
	maxTokenAge = 10 * time.Minute
)
