package workload

// Values for the golden tests: a change of them breaks "same seed, same prompts".
var goldenLengths = []Lengths{
	{Class: "typical", Input: 661, Output: 417},
	{Class: "short", Input: 110, Output: 26},
	{Class: "short", Input: 86, Output: 75},
	{Class: "short", Input: 247, Output: 84},
}

const (
	goldenBlockPrompt = "26412d4eac587bd34d36e7b8f3796a092c7a88d26028d7e8c6ae557066df6e08"
	goldenIDPrompt    = "5f4e4b8ae893dc3f5874dd7c0a9802b49f7a0aa8d38ae49225edfa301c565258"
)

var goldenPrompts = []string{
	"3ab4c64d72fabf45ae0423b29953c325ed24d168ca4f7d553709cc7939447c86",
	"bd687f66b668c444b2e911dd0d67bdadad2c3c43261de7817a85384c04a59941",
}
