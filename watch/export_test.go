package watch

// Offers counts the offers that wait.
func Offers(c *Cache) int {
	c.offers.mu.Lock()
	defer c.offers.mu.Unlock()
	return len(c.offers.open)
}
