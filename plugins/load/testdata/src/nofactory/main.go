// A plugin of something else.
package main

// CreateCoffee is nobody's factory.
func CreateCoffee() string { return "coffee" }

func main() {}
