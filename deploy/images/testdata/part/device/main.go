// Package main is a plugin.
package main

func Says() string { return "hello from the plugin" }

func main() {}
