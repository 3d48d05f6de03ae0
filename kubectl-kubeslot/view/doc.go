// Package view answers the questions that people have about devices: which there
// are, who holds a slot, why a pod waits, what is not as it should be. It is a pure
// function of objects as the API server has them; see package command for where they
// come from.
package view
