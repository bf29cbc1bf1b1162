package watch

// Offers returns the number of open offers.
func Offers(c *Cache) int {
	c.offers.mu.Lock()
	defer c.offers.mu.Unlock()
	return len(c.offers.open)
}
