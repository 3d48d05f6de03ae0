// Command host loads /plugins/part.so and says what it says.
package main

import (
	"fmt"
	"os"
	"plugin"
)

func main() {
	p, err := plugin.Open("/plugins/part.so")
	if err == nil {
		var says plugin.Symbol
		if says, err = p.Lookup("Says"); err == nil {
			fmt.Println(says.(func() string)())
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
