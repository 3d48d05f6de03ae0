// A client of npm's onvif: finds cameras, logs in to the first, and prints what it
// tells as JSON. Usage: client.js <user> <password> <wss|digest>
const onvif = require('onvif');
const { promisify } = require('util');
const [user, password, auth] = process.argv.slice(2);

const result = { found: [] };
onvif.Discovery.on('error', () => {});
onvif.Discovery.on('device', (cam, _, xml) => {
	result.found.push({ urn: xml.match(/Address>(urn:uuid:[^<]+)</)[1], xaddrs: cam.xaddrs.map(String) });
});
onvif.Discovery.probe({ timeout: 800 }, async (_, found) => {
	try {
		const { hostname, port, path } = found[0];
		const cam = await new Promise((resolve, reject) => {
			const c = new onvif.Cam(
				{ hostname, port, path, username: user, password, useWSSecurity: auth === 'wss', timeout: 5000 },
				err => err ? reject(err) : resolve(c));
		});
		const get = name => promisify(cam[name]).call(cam);
		result.time = await get('getSystemDateAndTime');
		result.information = await get('getDeviceInformation');
		result.scopes = (await get('getScopes')).map(scope => scope.scopeItem);
		result.interfaces = await get('getNetworkInterfaces');
		result.hostname = await get('getHostname');
		result.stream = await promisify(cam.getStreamUri).call(cam, { protocol: 'RTSP' });
	} catch (err) {
		result.error = err.message;
	}
	console.log(JSON.stringify(result));
});
